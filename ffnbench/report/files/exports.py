"""What other tools read: Bencher, github-action-benchmark, JUnit, GitHub annotations."""

from __future__ import annotations

import xml.etree.ElementTree as xml
from collections.abc import Callable, Sequence

from ffnbench.gate.decision import Finding, Status
from ffnbench.jsonable import text_of
from ffnbench.metrics import METRICS
from ffnbench.report.csv_columns import case_records
from ffnbench.result import Report
from ffnbench.streams import visible
from ffnbench.units import percent, signed_percent

FAILS = {Status.REGRESSED, Status.MISSING}
WARNS = {Status.UNCLEAR, Status.INCOMPARABLE}


def bencher(report: Report) -> str:
    """Bencher Metric Format: latency in nanoseconds with its interval, and the exact counts."""
    found = {}
    for row in case_records(report):
        metrics = {}
        ends = {"value": "latency_s", "lower_value": "latency_low_s", "upper_value": "latency_high_s"}
        if row["latency_s"] is not None:
            metrics["latency"] = {name: row[key] * 1e9 for name, key in ends.items() if row[key] is not None}
        exact = [metric.name for metric in METRICS if metric.exported and metric.exact]
        metrics |= {name: {"value": row[name]} for name in exact if row[name] is not None}
        found[row["label"]] = metrics
    return text_of(found, 1) + "\n"


def github_action_benchmark(report: Report) -> str:
    """customSmallerIsBetter of github-action-benchmark: one entry a case and metric."""
    found = []
    for row in case_records(report):
        if row["latency_s"] is not None:
            entry = {"name": f"{row['label']} latency", "unit": "s", "value": row["latency_s"]}
            if row["latency_high_s"] is not None:
                entry["range"] = f"± {(row['latency_high_s'] - row['latency_low_s']) / 2:.3g}"
            found.append(entry | {"extra": f"{row['workers']} processes x {row['rounds']} rounds"})
        if row["peak_bytes"] is not None:
            found.append({"name": f"{row['label']} peak", "unit": "B", "value": row["peak_bytes"]})
    return text_of(found, 1) + "\n"


EXPORTS: dict[str, Callable[[Report], str]] = {
    "bencher": bencher,
    "github-action-benchmark": github_action_benchmark,
}


def described(finding: Finding) -> str:
    """One finding in one line of words."""
    change = finding.change
    text = f"{finding.case} {finding.metric}: {finding.status.word}"
    if change and change.low and change.high:
        value, low, high = (signed_percent(v - 1) for v in (change.value, change.low, change.high))
        text += f", {value} [{low}, {high}] at a tolerance of {percent(finding.tolerance)}"
    elif finding.before is not None and finding.now is not None and finding.before != finding.now:
        text += f", {finding.before:,.0f} then, {finding.now:,.0f} now"
    return visible(text + (f" ({finding.reason})" if finding.reason else ""))


def workflow_commands(findings: Sequence[Finding]) -> str:
    """GitHub's workflow commands: an error for what fails, a warning for what can't be told."""
    lines = []
    for finding in findings:
        level = "error" if finding.status in FAILS else "warning" if finding.status in WARNS else ""
        if level:
            text = described(finding).replace("%", "%25")
            lines.append(f"::{level} title=ffnbench {finding.status.word}::{text}")
    return "".join(line + "\n" for line in lines)


def junit(findings: Sequence[Finding]) -> str:
    """JUnit XML: a test case a row; what can't be told is skipped, with its reason."""
    failed = sum(f.status in FAILS for f in findings)
    unclear = sum(f.status in WARNS for f in findings)
    suite = xml.Element(
        "testsuite", name="ffnbench check", tests=str(len(findings)), failures=str(failed), skipped=str(unclear)
    )
    for finding in findings:
        case = xml.SubElement(suite, "testcase", classname=visible(f"ffnbench.{finding.case}"), name=finding.metric)
        if finding.status in FAILS:
            xml.SubElement(case, "failure", type=finding.status.value, message=described(finding))
        elif finding.status in WARNS:
            xml.SubElement(case, "skipped", message=described(finding))
        else:
            xml.SubElement(case, "system-out").text = described(finding)
    xml.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + xml.tostring(suite, encoding="unicode") + "\n"
