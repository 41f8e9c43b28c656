"""A model's name on the hub: its config.json in the cache on this disk, and never the
network.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from ffnbench.common.errors import FfnbenchError
from ffnbench.models.published import cached_config, config_path, is_name, model_of

NAME = "meta-llama/Llama-3.1-8B"
ELSEWHERE = "ada/else"  # no preset is called so
VARIABLES = ("HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME")
LLAMA = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "hidden_act": "silu",
    "num_attention_heads": 4, "vocab_size": 100,
}  # fmt: skip


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, an empty current folder, and no network."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refused)
    return tmp_path / "hub"


def keep(
    cache: Path, name: str, *commits: str, main: str | None = None, config: dict = LLAMA
) -> Path:
    """A download as huggingface_hub leaves it: the config is a link to a blob. Gives
    the model's folder.
    """
    model = cache / f"models--{name.replace('/', '--')}"
    (model / "blobs").mkdir(parents=True)
    (model / "blobs" / "b10b").write_text(json.dumps(config))
    for commit in commits:
        (model / "snapshots" / commit).mkdir(parents=True)
        (model / "snapshots" / commit / "config.json").symlink_to("../../blobs/b10b")
    if main is not None:
        (model / "refs").mkdir()
        (model / "refs" / "main").write_text(main)
    return model


def test_the_config_of_main_is_found(cache: Path) -> None:
    model = keep(cache, NAME, "aaaa", "bbbb", main="bbbb\n")
    assert config_path(NAME) == str(model / "snapshots" / "bbbb" / "config.json")


def test_the_only_snapshot_is_found(cache: Path) -> None:
    model = keep(cache, "gpt2-tiny", "aaaa")
    found = config_path("gpt2-tiny")
    assert found == str(model / "snapshots" / "aaaa" / "config.json")


def test_what_exists_wins_over_a_name(cache: Path) -> None:
    keep(cache, NAME, "aaaa")
    here = Path("meta-llama") / "Llama-3.1-8B"
    here.mkdir(parents=True)
    (here / "config.json").write_text(json.dumps(LLAMA))
    assert config_path(NAME) == NAME


@pytest.mark.parametrize(
    "name",
    ["../up", "a/../b", "/etc/passwd", "a/b/c", "..", ".", "a--b", "a/", "/a", "~/a", "a\\b", "a b", "", "x" * 200,
     ".hidden/x", "a/b.json", "a\0b", "ä/b"],
)  # fmt: skip
def test_what_could_lead_elsewhere_is_no_name(cache: Path, name: str) -> None:
    assert not is_name(name)
    assert cached_config(name) is None
    with pytest.raises(FfnbenchError):
        model_of(name)


def test_a_name_that_is_not_here_is_one_error() -> None:
    with pytest.raises(
        FfnbenchError, match="is no file here, and the hub's cache on this disk"
    ) as caught:
        model_of(ELSEWHERE)
    assert "list presets" in caught.value.hint
    assert f"`hf download {ELSEWHERE} config.json`" in caught.value.hint
