"""Models as variants: --preset, --config, a preset's name, and whether there is room
for them.
"""

from __future__ import annotations

from fake_machine import planned

from ffnbench.ffn.spec import FFNSpec
from ffnbench.plan.plan import Probe, cost_of
from ffnbench.run.resources import memory_needed, too_large


def ffns(**options: object) -> dict[str, FFNSpec]:
    """By label, of a model's row without its form."""
    return {
        case.label.partition(" (")[0]: case.ffn for case in planned(**options).cases
    }


def test_the_preset_stands_first_where_nobody_names_it() -> None:
    plan = planned(preset="gpt2", variants="relu,swiglu")
    assert [case.label for case in plan.cases] == ["gpt2 (gelu_tanh)", "relu", "swiglu"]
    assert plan.reference == "gpt2 (gelu_tanh)"
    assert all(case.ffn.bias for case in plan.cases)
    labelled = planned(preset="gpt2", variants="relu,theirs=preset@dtype=bf16")
    assert [case.label for case in labelled.cases] == ["relu", "theirs"]


def test_a_name_is_a_variant_and_keys_go_on_top() -> None:
    assert ffns(variants="gpt2")["gpt2"].bias
    changed = ffns(variants="gpt2@bias=false@d_ff=1000")["gpt2@bias=false@d_ff=1000"]
    assert (changed.d_model, changed.d_ff, changed.bias, changed.activation) == (
        768,
        1000,
        False,
        "gelu_tanh",
    )
    assert (
        ffns(variants="llama-7b@rule=classic", match="none")[
            "llama-7b@rule=classic"
        ].d_ff
        == 4 * 4096
    )


def test_room_is_the_weights_and_the_dearest_call() -> None:
    plan = planned(
        variants="a=relu,b=relu", d_model=64, d_ff=256, seq_len=8, device="cpu"
    )
    weights, inputs = 2 * 2 * 64 * 256 * 4, 2 * 2 * 8 * 64 * 4
    peak = cost_of(plan.cases[0], Probe()).peak_bytes
    # in a worker and in two starters, which have drawn them; one matrix in float64
    needed = 3 * weights + inputs + 8 * 64 * 256 + peak
    assert memory_needed(list(plan.cases)) == needed


def test_what_memory_does_not_hold_is_left_out_largest_first() -> None:
    """A reference of 64 KiB, rows of 1 MiB and 64 KiB; then not even the reference."""
    asked = dict(
        variants="a=relu@d_ff=128,large=relu@d_ff=2048,small=relu@d_ff=128",
        d_model=64,
        seq_len=1,
        device="cpu",
    )
    plan = planned(**asked)

    def failed(available: int | None) -> dict[str, str]:
        failures = too_large(plan, {"cpu": available})
        return {failure.case: failure.message for failure in failures}

    assert failed(1 << 30) == failed(None) == {}
    assert list(failed(1 << 19)) == ["large"]
    assert sorted(failed(1 << 10)) == ["a", "large", "small"]
    assert "and 1.00 KiB are available" in failed(1 << 10)["a"]


def test_training_has_room_for_gradients_of_the_largest_weights() -> None:
    """Beside what a call holds at its peak: those of the last case may still be
    there.
    """
    asked = dict(
        variants="a=relu,b=relu@d_ff=128",
        d_model=64,
        d_ff=256,
        seq_len=8,
        device="cpu",
        mode="train",
    )
    cases = list(planned(**asked).cases)
    weights, inputs = (2 * 64 * 256 + 2 * 64 * 128) * 4, 2 * 2 * 8 * 64 * 4
    peak = cost_of(cases[0], Probe()).peak_bytes
    gradients = 2 * 64 * 256 * 4
    needed = 3 * weights + gradients + inputs + 8 * 64 * 256 + peak
    assert memory_needed(cases) == needed
