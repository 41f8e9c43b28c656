"""Files that are broken, odd or hostile: saved runs, configs of models."""

from __future__ import annotations

import json
from typing import Any

from fault_rows.kit import LOOSE, Scene, fault, sealed

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "hidden_act": "silu",
    "num_attention_heads": 2, "vocab_size": 100,
}  # fmt: skip
NESTED = "[" * 10_000 + "]" * 10_000


def changed(scene: Scene, where: list[str | int], value: Any) -> dict[str, Any]:
    """A saved run with one value changed, and sealed again."""
    data = scene.measured()
    place: Any = data
    for key in where[:-1]:
        place = place[key]
    place[where[-1]] = value
    return sealed(data)


@fault("a saved run: nested 10,000 deep, 10**400, a key twice, NaN, half of it, parts that are missing or odd",
       "report and check: exit 2 and one line", 2)  # fmt: skip
def broken_runs(scene: Scene) -> None:
    run = scene.measured()
    text = json.dumps(run)
    workload = ["plan", "cases", 1, "workload"]
    scene.write("good.json", run)
    for content in (
        NESTED, text.replace('"wall_s": ', f'"wall_s": 1{"0" * 400}, "was": ', 1), text[: len(text) // 2],
        text.replace('"d_ff": ', '"d_ff": 1e400, "was": ', 1), text.replace("{", '{"schema": 2, ', 1), "", "[]", "null",
        text.encode("utf-16"), text.encode() + b"\xff", {**run, "costs": []}, changed(scene, ["plan", "cases"], []),
        changed(scene, ["samples", 0, "value"], float("nan")), changed(scene, ["samples", 0, "value"], -1.0),
        changed(scene, ["samples", 0], {"case": "relu"}), changed(scene, ["plan", "reference"], "nobody"),
        changed(scene, [*workload, "dtype"], "float99"), changed(scene, [*workload, "threads"], 0),
    ):  # fmt: skip
        scene.write("bad.json", content)
        commands = (["report", "bad.json"], ["check", "bad.json", "--exact-only"], ["check", "good.json", "bad.json"])
        for running in [scene.start(*command, *(LOOSE if "good.json" in command else ())) for command in commands]:
            done = running.end()
            scene.one_error(done)
            scene.expect(not done.out, "there is an answer on stdout")
    for name in (".", "/dev/null", "nowhere.json"):
        scene.one_error(scene.run("report", name, seconds=20))


@fault("a config of 10**12 layers, of odd sizes and words, with a key twice, that is none", "exit 2 and one line", 2)
def broken_configs(scene: Scene) -> None:
    for content in (
        {**LLAMA, "num_hidden_layers": 10**12}, {**LLAMA, "hidden_size": 10**30}, {**LLAMA, "hidden_size": [64]},
        {**LLAMA, "hidden_size": -64}, {**LLAMA, "per_layer_config": [1, 2]}, {**LLAMA, "hidden_act": {"a": 1}},
        {**LLAMA, "hidden_act": "\x1b]0;owned\x07"}, json.dumps(LLAMA)[:-1] + ', "intermediate_size": 256}',
        {**LLAMA, "model_type": ["llama"]}, NESTED, "[]", "", '{"model_type": ', b"\xff\xfe\x00",
    ):  # fmt: skip
        scene.write("config.json", content)
        commands = ("inspect config.json", "cost --config config.json", "block --config config.json --cost-only")
        for running in [scene.start(*command.split()) for command in commands]:
            done = running.end()
            scene.one_error(done)
            scene.plain(done)


@fault("a saved run, a config with a byte order mark", "they are read: exit 0", 0)
def byte_order_mark(scene: Scene) -> None:
    scene.write("run.json", b"\xef\xbb\xbf" + json.dumps(scene.measured()).encode())
    scene.write("config.json", b"\xef\xbb\xbf" + json.dumps(LLAMA).encode())
    scene.run("report", "run.json")
    scene.run("cost", "--config", "config.json")
