"""Files that are broken, odd or hostile: saved runs, configs of models."""

from __future__ import annotations

import json
from typing import Any

from fault_rows.kit import LOOSE, Scene, fault, sealed

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "hidden_act": "silu",
    "num_attention_heads": 2, "vocab_size": 100,
}  # fmt: skip
JSON_PROMISE = "report and check: exit 2 and one line"


def refused(scene: Scene, content: str | bytes | dict[str, Any], name: str = "bad.json") -> None:
    """Neither report nor check takes it, as a baseline or beside one."""
    scene.write(name, content)
    scene.write("good.json", scene.measured())
    commands = (["report", name], ["check", name, "--exact-only"], ["check", "good.json", name, *LOOSE])
    for running in [scene.start(*command) for command in commands]:
        done = scene.ends(running.end(), 2)
        scene.one_error(done)
        scene.expect(not done.out, "there is an answer on stdout")


def changed(scene: Scene, where: list[str | int], value: Any) -> dict[str, Any]:
    """A saved run with one value changed, and sealed again."""
    data = scene.measured()
    place: Any = data
    for key in where[:-1]:
        place = place[key]
    place[where[-1]] = value
    return sealed(data)


WORKLOAD: list[str | int] = ["plan", "cases", 1, "workload"]


@fault("a saved run: nested 10,000 deep", JSON_PROMISE, 2)
def nested(scene: Scene) -> None:
    refused(scene, "[" * 10_000 + "]" * 10_000)
    refused(scene, '{"a":' * 10_000 + "1" + "}" * 10_000)


@fault("a saved run: 10**400, and 10,000 digits", JSON_PROMISE, 2)
def huge_numbers(scene: Scene) -> None:
    text = json.dumps(scene.measured())
    for number in ("1" + "0" * 400, "9" * 10_000, "1e400"):
        refused(scene, text.replace('"wall_s": ', f'"wall_s": {number}, "was": ', 1))
        refused(scene, text.replace('"d_ff": ', f'"d_ff": {number}, "was": ', 1))


@fault("a saved run: a key twice", JSON_PROMISE, 2)
def twice(scene: Scene) -> None:
    refused(scene, json.dumps(scene.measured()).replace("{", '{"schema": 2, ', 1))


@fault("a saved run: NaN, Infinity, a negative latency", JSON_PROMISE, 2)
def no_numbers(scene: Scene) -> None:
    for value in (float("nan"), float("inf"), -1.0, 0.0):
        refused(scene, changed(scene, ["samples", 0, "value"], value))


@fault("a saved run: without costs, cases, plan, samples' fields, or empty", JSON_PROMISE, 2)
def lacking(scene: Scene) -> None:
    for key in ("costs", "plan"):
        refused(scene, {name: item for name, item in scene.measured().items() if name != key})
    refused(scene, {**scene.measured(), "costs": []})
    refused(scene, changed(scene, ["plan", "cases"], []))
    refused(scene, changed(scene, ["plan", "cases", 1], {}))
    refused(scene, changed(scene, ["samples", 0], {"case": "relu"}))
    refused(scene, changed(scene, ["plan", "reference"], "nobody"))
    for text in ("", "{}", "[]", "null", "3", '"text"', "\x00" * 100):
        refused(scene, text)


@fault("a saved run: an unknown dtype, mode `zzz`, zero threads, a negative batch", JSON_PROMISE, 2)
def odd_workloads(scene: Scene) -> None:
    for name, value in (("dtype", "float99"), ("mode", "zzz"), ("backend", "jit"), ("threads", 0), ("batch", -1)):
        refused(scene, changed(scene, [*WORKLOAD, name], value))
    refused(scene, changed(scene, [*WORKLOAD, "dtype"], ["float32"]))


@fault("a saved run: half of it", JSON_PROMISE, 2)
def half(scene: Scene) -> None:
    text = json.dumps(scene.measured())
    refused(scene, text[: len(text) // 2])
    refused(scene, text.encode("utf-16"))
    refused(scene, text.encode() + b"\xff")


@fault("a saved run with a byte order mark", "it is read: exit 0", 0)
def byte_order_mark(scene: Scene) -> None:
    scene.write("run.json", b"\xef\xbb\xbf" + json.dumps(scene.measured()).encode())
    scene.run("report", "run.json")
    scene.run("check", "run.json", "--exact-only")


@fault("no file as a saved run: a folder, an empty device, nothing", "exit 2 and one line", 2)
def no_saved_run(scene: Scene) -> None:
    for name in (".", "/dev/null", "nowhere.json"):
        scene.one_error(scene.run("report", name, seconds=20))


def config(scene: Scene, content: str | bytes | dict[str, Any], *codes: int) -> None:
    """inspect, cost and block of a config.json."""
    scene.write("config.json", content)
    commands = ("inspect config.json", "cost --config config.json", "block --config config.json --cost-only",
                "block --config config.json --whole-model")  # fmt: skip
    for running in [scene.start(*command.split()) for command in commands]:
        done = scene.ends(running.end(), *codes)
        if done.code:
            scene.one_error(done)


@fault("a config with num_hidden_layers 10**12", "exit 2 and one line", 2)
def many_layers(scene: Scene) -> None:
    config(scene, {**LLAMA, "num_hidden_layers": 10**12}, 2)


@fault("a config with sizes of 10**30, of text, of lists, negative", "exit 2 and one line", 2)
def odd_sizes(scene: Scene) -> None:
    for value in (10**30, "64", [64], -64, 0, 1.5, True, {"a": 1}):
        config(scene, {**LLAMA, "hidden_size": value}, 2)


@fault("a config with per_layer_config [1, 2]", "exit 2 and one line", 2)
def layers_of_their_own(scene: Scene) -> None:
    for value in ([1, 2], "text", 3, {"0": [1]}, {"0": 5}):
        config(scene, {**LLAMA, "per_layer_config": value}, 2)


@fault("a config with a key twice", "exit 2 and one line", 2)
def key_twice(scene: Scene) -> None:
    config(scene, json.dumps(LLAMA)[:-1] + ', "intermediate_size": 256}', 2)


@fault("a config that is nested 10,000 deep, that is no object, that is no JSON", "exit 2 and one line", 2)
def no_config(scene: Scene) -> None:
    for text in ("[" * 10_000 + "]" * 10_000, "[]", "3", "", '{"model_type": ', b"\xff\xfe\x00"):
        config(scene, text, 2)


@fault("a config with a byte order mark", "it is read: exit 0", 0)
def config_with_a_mark(scene: Scene) -> None:
    config(scene, b"\xef\xbb\xbf" + json.dumps(LLAMA).encode(), 0)


@fault("a config with an odd model_type, activation, switches", "exit 2 and one line", 2)
def odd_words(scene: Scene) -> None:
    for key, value in (("model_type", ["llama"]), ("hidden_act", {"a": 1}), ("hidden_act", 3), ("mlp_bias", "yes"),
                       ("hidden_act", "\x1b]0;owned\x07")):  # fmt: skip
        scene.write("config.json", {**LLAMA, key: value})
        done = scene.run("cost", "--config", "config.json")
        scene.one_error(done)
        scene.plain(done)
