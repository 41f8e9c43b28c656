"""What is told before measuring begins, and what is refused before anything starts."""

from __future__ import annotations

import pytest
from fake_machine import FakeLaunch, prepare

from ffnbench.app import commands
from ffnbench.common.errors import FfnbenchError
from ffnbench.common.targets import resolve
from ffnbench.run import worker, world


def gone(*_: object) -> None:
    raise AssertionError("a process was started")


def test_no_gpu_is_told_before_any_process(call, monkeypatch) -> None:
    made = world.World
    monkeypatch.setattr(
        world, "World", lambda **given: made(**given, no_gpu=lambda: "there is none")
    )
    monkeypatch.setattr(worker, "Worker", gone)
    for arguments, said in (
        (["--device", "cuda"], "device 'cuda' was asked for, but there is none"),
        (
            ["--variants", "relu@device=cuda:1"],
            "device 'cuda:1' was asked for, but there is none",
        ),
        (
            ["--device", "cuda", "--variants", "fake_machine:FakeWorker"],
            "device 'cuda' was asked for, but there is none",
        ),
    ):
        launch = FakeLaunch()
        code, _, err = call("compare", *arguments, launch=launch)
        assert code == 2
        assert said in err.splitlines()[-2]
        assert launch.workers == []
    prepare(
        device="cuda", cost_only=True, command=commands.block
    )  # nothing is measured


def test_a_module_that_is_there_and_does_not_load_is_not_said_to_be_missing(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "loads_not.py").write_text("import something_nowhere")
    (tmp_path / "raises.py").write_text(
        "raise RuntimeError('operator torchvision::nms does not exist')"
    )
    for name, hint in (
        (
            "loads_not",
            "it needs 'something_nowhere': is that installed in this environment?",
        ),
        (
            "raises",
            "it is there, and does not load: does `python -c 'import raises'` work?",
        ),
    ):
        with pytest.raises(FfnbenchError) as caught:
            resolve(f"{name}:X")
        assert caught.value.hint == hint
    with pytest.raises(FfnbenchError) as caught:
        resolve("nowhere_at_all.mlp:X")
    assert "is it installed" in caught.value.hint
