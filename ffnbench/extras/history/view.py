"""How rows over time read: table, records, picture, and what a pull request is told."""

from __future__ import annotations

from dataclasses import replace

from ffnbench.extras.history.table import annotated, history_records, history_table
from ffnbench.extras.history.timeline import Timeline
from ffnbench.report.formats import View, view_of


def history_view(found: Timeline) -> View:
    """Rows over time as the end of a command."""
    table = history_table(found)

    def picture(suffix: str) -> bytes:
        from ffnbench.extras.history.picture import history_figure
        from ffnbench.report.pictures.canvas import render

        return render(history_figure(found), suffix, texts=True)

    title = f"history: {', '.join(dict.fromkeys(row.case.label for row in found.rows))}"
    view = view_of(table, lambda: history_records(found), pictures={"": picture}, title=title, every=False)
    return replace(view, stdout={**view.stdout, "github": lambda: annotated(found)})
