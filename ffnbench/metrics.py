"""The metrics: one row each, what can be known of a case. A new one is a row here, and
the job that measures it.
"""

from __future__ import annotations

from dataclasses import dataclass

LATENCY, PEAK, SAVED, COMPILE = "latency", "peak_bytes", "saved_bytes", "compile_s"
DEVICE_TIME, HOST_TIME = "device_s", "host_s"
LOAD, HIT = "expert_load_max", "experts_hit"
PACK, HELD = "pack_s", "held_bytes"
ERROR, LARGEST_ERROR, GRADIENT_ERROR = "error", "largest_error", "gradient_error"
MEMORY_GROUP = "memory"  # a group of metrics
# a group of its own, and what the samples of a ceiling are called
CEILINGS, ROOF = "ceilings", "roof"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One row of the table of what can be known of a case. A new metric is one row, and
    the job that measures it.

    `group` is its name in --metrics, "" where nobody asks for it. `job` is what a
    worker is asked, "" for what follows from the closed forms alone. An exact metric is
    the same in every process and needs one; a timed one is sampled. `closed_form`: a
    field of Cost of that name predicts it, and tests hold the two equal.
    """

    name: str
    unit: str  # s, bytes, share, or "" for a plain number
    group: str = ""
    job: str = ""
    exact: bool = True
    less_is_better: bool = False
    checked: bool = False  # whether `check` holds it against a baseline
    closed_form: bool = False


# fmt: off
METRICS = (
    Metric(name=LATENCY, unit="s", group="latency", job="sample", exact=False, less_is_better=True),
    # on an accelerator, from the same sample: what the device works for a call, and
    # what a call costs the host
    Metric(name=DEVICE_TIME, unit="s", job="sample", exact=False, less_is_better=True),
    Metric(name=HOST_TIME, unit="s", job="sample", exact=False, less_is_better=True),
    Metric(name="params", unit="", checked=True, closed_form=True),
    Metric(name="flops_forward", unit="", checked=True, closed_form=True),
    Metric(name="flops_backward", unit="", checked=True, closed_form=True),
    Metric(name="flops_elementwise", unit="", checked=True, closed_form=True),
    Metric(name=PEAK, unit="bytes", group=MEMORY_GROUP, job="memory", less_is_better=True, checked=True, closed_form=True),
    Metric(name=SAVED, unit="bytes", group=MEMORY_GROUP, job="memory", less_is_better=True, checked=True, closed_form=True),
    Metric(name="zero_share", unit="share", group="sparsity", job="sparsity"),
    Metric(name="dead_share", unit="share", group="sparsity", job="sparsity"),
    Metric(name=LOAD, unit="", group="routing", job="route"),
    Metric(name=HIT, unit="", group="routing", job="route"),
    # wherever something is compiled
    Metric(name=COMPILE, unit="s", job="open", exact=False, less_is_better=True),
    # wherever weights are packed
    Metric(name=PACK, unit="s", job="open", exact=False, less_is_better=True),
    # of the weights that a call computes with
    Metric(name=HELD, unit="bytes", job="open", less_is_better=True),
    # relative, against float64; asked for by name also without latency, which their
    # group is for
    Metric(name=ERROR, unit="", group=ERROR, job="check", exact=False, less_is_better=True),
    Metric(name=LARGEST_ERROR, unit="", group=ERROR, job="check", less_is_better=True),
    Metric(name=GRADIENT_ERROR, unit="", group=ERROR, job="check", less_is_better=True),
    # of a Roof's call, not of a case
    Metric(name=ROOF, unit="s", group=CEILINGS, job="roof", exact=False),
)
# fmt: on
METRIC_GROUPS = {
    group: tuple(metric for metric in METRICS if metric.group == group)
    for group in dict.fromkeys(metric.group for metric in METRICS if metric.group)
}
CLOSED_FORMS = frozenset(metric.name for metric in METRICS if metric.closed_form)
