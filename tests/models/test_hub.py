"""A model's name on the hub: its config.json in the cache on this disk, and never the
network.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from ffnbench.common.errors import FfnbenchError
from ffnbench.models.published import config_path, model_of

huggingface_hub = pytest.importorskip("huggingface_hub")

NAME = "meta-llama/Llama-3.1-8B"
ELSEWHERE = "ada/else"  # no preset is called so
LLAMA = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "hidden_act": "silu",
    "num_attention_heads": 4, "vocab_size": 100,
}  # fmt: skip


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, an empty current folder, and no network."""
    monkeypatch.setattr(
        huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub")
    )
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
    model = keep(cache, NAME, "aaaa", "bbbb", main="bbbb")
    assert config_path(NAME) == str(model / "snapshots" / "bbbb" / "config.json")


def test_what_exists_wins_over_a_name(cache: Path) -> None:
    keep(cache, NAME, "aaaa", main="aaaa")
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
    with pytest.raises(FfnbenchError):
        model_of(name)


def test_a_name_that_is_not_here_is_one_error() -> None:
    with pytest.raises(FfnbenchError, match="nor in the hub's cache") as caught:
        model_of(ELSEWHERE)
    assert "list presets" in caught.value.hint
    assert "`hf download ORG/NAME config.json`" in caught.value.hint
