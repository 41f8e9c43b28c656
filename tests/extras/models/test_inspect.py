"""`inspect` of a config.json: by the table, by transformers, and where neither can."""

from __future__ import annotations

import json

import pytest
from hf import written
from model_configs import BERT, LLAMA
from shell import ffnbench as shell

import ffnbench
from ffnbench.cli import run_command_line
from ffnbench.cli.words import words_of
from ffnbench.common.errors import FfnbenchError
from ffnbench.extras.models.inspecting import inspect_model
from ffnbench.extras.models.messages import CountLayers
from ffnbench.messages import Failed
from ffnbench.result import FailureKind
from ffnbench.run.world import World


def test_it_names_the_sizes_that_a_file_leaves_to_its_class(tmp_path, capsys) -> None:
    path = written(
        tmp_path, {"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 22}
    )
    for words in (["inspect"], ["inspect", "--whole-model"]):
        assert run_command_line([*words, path]) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert (
            "defaults of llama, which the file does not set: intermediate_size 11,008"
            in shown
        ), words
        assert "num_hidden_layers" not in shown, words
        assert run_command_line([*words, path, "--format", "json"]) == 0
        assert "intermediate_size 11,008" in capsys.readouterr().out, words
    assert (
        run_command_line(["inspect", written(tmp_path, LLAMA | {"vocab_size": 8})]) == 0
    )
    assert "defaults of" not in capsys.readouterr().out


def test_inspect_counts_the_tail_by_transformers(tmp_path) -> None:
    """By hand: 2 of 6 experts, gated and without biases, a router, and a bias behind
    them.
    """
    transformers = pytest.importorskip("transformers")
    jetmoe = {
        "model_type": "jetmoe",
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
    }
    done = shell(
        "inspect",
        written(tmp_path, jetmoe | {"num_local_experts": 6}),
        "--format",
        "json",
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (
        answer["counted_by"]
        == f"transformers {transformers.__version__}, which built it"
    )
    every, expert = 6 * 32 + 32, 3 * 32 * 48
    assert [(each["count"], each["params"], each["params_active"], each["spec"]) for each in answer["layers"]] == [
        (2, 6 * expert + every, 2 * expert + every, None)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("told", "hint"),
    [
        (
            "transformers is not installed",
            "transformers is not installed: pip install 'ffnbench[hf]'",
        ),
        (
            "transformers can't build 'bert': TypeError: no",
            "transformers can't build 'bert': TypeError: no",
        ),
    ],
)
def test_why_transformers_does_not_help_is_told_with_a_pip_line_where_that_helps(
    tmp_path, told, hint
) -> None:
    path, asked = written(tmp_path, BERT | {"intermediate_size": None}), []

    class Worker:
        def ask(self, order: object, timeout: float) -> Failed:
            asked.append(order)
            return Failed(kind=FailureKind.UNSUPPORTED, message=told)

        def close(self) -> None:
            asked.append("closed")

    with pytest.raises(FfnbenchError, match="has no intermediate_size") as caught:
        inspect_model(path, World(launch=Worker))
    assert asked == [CountLayers(source=path), "closed"]
    assert caught.value.hint == f"looked for the keys: intermediate_size; {hint}"


def test_the_python_function_gives_a_frame_and_saves(tmp_path) -> None:
    found = ffnbench.inspect("mixtral-8x7b")
    assert found.frame()["params"].tolist() == [
        1_409_318_912
    ]  # 8 experts of 3 * 4,096 * 14,336, and a router
    assert "Mixtral" in str(found)
    assert (
        found.save(tmp_path / "model.csv").read_text().startswith("kind,count,params")
    )
    whole = ffnbench.inspect("llama3-8b", whole_model=True).frame()
    assert whole.set_index("part")["params"]["all"] == 8_030_261_248
    at_length = ffnbench.inspect("llama3-8b", length=8192).frame()
    assert at_length["kv_bytes"].tolist() == [32 * 2 * 8 * 128 * 4 * 8192]


def test_a_shell_offers_models() -> None:
    assert "mixtral-8x7b" in words_of("preset")
