"""What other tools read of a check: JUnit, GitHub annotations."""

from __future__ import annotations

import xml.etree.ElementTree as xml
from collections.abc import Sequence

from ffnbench.gate.decision import Finding, Status
from ffnbench.streams import visible
from ffnbench.units import percent, signed_percent

FAILS = {Status.REGRESSED, Status.MISSING}
WARNS = {Status.UNCLEAR, Status.INCOMPARABLE}


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
