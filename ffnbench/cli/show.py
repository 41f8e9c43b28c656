"""How a command ends: its answer on stdout, its files written, and what the exit code follows from."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from ffnbench.errors import EXIT_INTERRUPTED, FfnbenchError, Interrupted, Unfinished
from ffnbench.gate import Gate
from ffnbench.names import hint_for
from ffnbench.report import listing
from ffnbench.report.exports import EXPORTS, junit, workflow_commands
from ffnbench.report.findings import finding_records, findings_table
from ffnbench.report.listing import machine_readable
from ffnbench.report.store import FORMATS, WRITERS, Outputs, Writer, json_text, save
from ffnbench.report.table import Table
from ffnbench.report.text import markdown, show
from ffnbench.result import Report
from ffnbench.stats.regression import Status, exit_code

Records = list[dict[str, Any]]


def check_format(name: str) -> None:
    """Raise FfnbenchError for a format that stdout does not speak."""
    if name not in FORMATS:
        raise FfnbenchError(f"unknown format {name!r}", hint_for(name, FORMATS, "formats: " + ", ".join(FORMATS)))


def finish(
    report: Report,
    table_of: Callable[[Any], Table],
    outputs: Outputs,
    format_: str,
    wide: bool,
    writers: Mapping[str, Writer] = WRITERS,
) -> int:
    """Show the answer and write the files; gives the exit code, or raises Unfinished where the answer is not whole."""
    if report.interrupted and not report.samples:
        raise Interrupted("interrupted before anything was measured")
    try:
        if format_ == "table":
            show(table_of(report), Console(), wide=wide)
        else:
            sys.stdout.write(str(writers[FORMATS[format_]](report, table_of)))
        sys.stdout.flush()
    finally:  # a stdout that is closed or full must not cost the files

        def written(suffix: str) -> bytes:
            found = writers[suffix](report, table_of)
            return found.encode() if isinstance(found, str) else found

        rescue = (lambda: written(".json")) if report.samples else None
        if paths := outputs.write(written, rescue):
            print("wrote " + ", ".join(map(str, paths)), file=sys.stderr)
    if report.interrupted:
        return EXIT_INTERRUPTED
    if report.stopped:
        raise Unfinished(report.stopped, "the table holds what was measured by then")
    if report.failures and {f.case for f in report.failures} >= {case.label for case in report.plan.shown}:
        raise Unfinished("nothing could be measured: every case failed", "the footnotes of the table say why")
    return 0


def show_records(records: Records, format_: str, wide: bool, footnotes: Sequence[str] = ()) -> None:
    """Records as one table, or as they are for machines."""
    if format_ == "table":
        show(listing.table(records, footnotes), Console(), wide=wide)
    else:
        sys.stdout.write(listing.machine_readable(records, format_))


def show_tables(records: Records, tables: Sequence[Table], format_: str, wide: bool) -> None:
    """Tables for people, the records behind them for machines."""
    if format_ == "markdown":
        sys.stdout.write("\n".join(markdown(table, every=True) for table in tables))
        return
    if format_ != "table":
        sys.stdout.write(listing.machine_readable(records, format_))
        return
    for i, table in enumerate(tables):
        if i:
            print()
        show(table, Console(), wide=wide)


CHECK_FORMATS = ("table", "markdown", "json", "csv", "github")
SUFFIXES = (".xml", ".md", ".json", ".csv")
UNCLEAR = ("pass", "fail")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be shown and written, checked before anything is measured."""

    baseline: str
    format: str
    exports: tuple[tuple[str, str], ...]  # format, path
    outputs: Outputs
    unclear_fails: bool
    update: bool

    @classmethod
    def checked(
        cls,
        baseline: str,
        format_: str,
        exports: Sequence[str],
        out: list[str],
        on_unclear: str,
        update: bool,
        exact_only: bool,
    ) -> Wanted:
        """Raises FfnbenchError for what can't be had."""
        _one_of("format", format_, CHECK_FORMATS)
        _one_of("--on-unclear", on_unclear, UNCLEAR)
        if update and exact_only:
            raise FfnbenchError("--update needs the whole measurement", "leave --exact-only out")
        pairs = tuple(_export(text) for text in exports)
        return cls(
            baseline=baseline, format=format_, exports=pairs, outputs=Outputs(out, "check", SUFFIXES),
            unclear_fails=on_unclear == "fail", update=update,
        )  # fmt: skip


def _one_of(name: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise FfnbenchError(f"unknown {name} {value!r}", hint_for(value, known, "one of: " + ", ".join(known)))


def _export(text: str) -> tuple[str, str]:
    """`bencher` (to bencher.json) or `bencher=path`."""
    name, _, path = text.partition("=")
    _one_of("export", name, tuple(EXPORTS))
    path = path or f"{name}.{'txt' if name == 'go-bench' else 'json'}"
    if not Path(path).parent.is_dir():
        raise FfnbenchError(f"cannot write {path!r}: no such folder", f"mkdir -p {Path(path).parent}")
    return name, path


def show_gate(gate: Gate, wanted: Wanted, outputs: Outputs, wide: bool, step_summary: str | None) -> int:
    """Show and write everything; gives the exit code. Raises Unfinished where the measuring did not end."""
    title = gate.title or f"FFN check against {wanted.baseline}"
    table = findings_table(gate.findings, gate.now, gate.smallest, title)
    if wanted.format == "table":
        show(table, Console(), wide=wide)
    elif wanted.format == "github":
        show(table, Console(width=100, no_color=True))
        sys.stdout.write(workflow_commands(gate.findings))
    elif wanted.format == "markdown":
        sys.stdout.write(markdown(table, every=True))
    else:
        sys.stdout.write(machine_readable(finding_records(gate.findings), wanted.format))
    paths = outputs.write(lambda suffix: _file(gate, table, suffix).encode())
    for name, path in wanted.exports:
        save(Path(path), EXPORTS[name](gate.now))
        paths.append(Path(path))
    if step_summary and wanted.format == "github":
        with open(step_summary, "a", encoding="utf-8") as file:
            file.write(markdown(table, every=True))
    code = exit_code(list(gate.findings), unclear_fails=wanted.unclear_fails)
    if gate.now.stopped:
        raise Unfinished(gate.now.stopped, "the table holds what was measured by then")
    if wanted.update:
        _refuse_half(gate)
        save(Path(wanted.baseline), json_text(gate.now))
        paths.append(Path(wanted.baseline))
        code = 0
    if paths:
        print("wrote " + ", ".join(map(str, paths)), file=sys.stderr)
    return code


def _refuse_half(gate: Gate) -> None:
    """A baseline is replaced by a whole measurement only."""
    lacking = {f.case for f in gate.findings if f.status in (Status.MISSING, Status.INCOMPARABLE)}
    if gate.now.interrupted or lacking or ("latency" in gate.before.plan.metrics and not gate.now.samples):
        what = f": nothing was measured for {', '.join(sorted(lacking))}" if lacking else ""
        raise Unfinished(f"the baseline was not updated{what}", "make a new one with `ffnbench compare ... -o`")


def _file(gate: Gate, table: Table, suffix: str) -> str:
    if suffix == ".xml":
        return junit(gate.findings)
    if suffix == ".md":
        return markdown(table, every=True)
    if suffix == ".csv":
        return machine_readable(finding_records(gate.findings), "csv")
    runs = {"now": gate.now, "again": gate.again}
    saved = {name: json.loads(json_text(report)) for name, report in runs.items() if report}
    return json.dumps({"findings": finding_records(gate.findings), **saved}, indent=1)
