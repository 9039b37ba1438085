"""The fleet in a terminal: a table that looks again, a filter, an order, one decision opened."""

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Input, Static

from podscale.cli.output import printable
from podscale.cli.top.command import COLUMNS, TopRow, chosen, column_widths

LOOK_S = 2.0
HELP = (
    "Arrow keys choose a row, whose WHY stands below the table. Enter opens its decision. Escape "
    "shows all rows again. LOAD is metric/target as in kubectl; SIZE is replicas, or requests."
)

Look = Callable[[], Awaitable[tuple[Sequence[TopRow], str]]]  # rows, and what could not be read


class DecisionScreen(Screen[None]):
    """One decision in words, and the reasons before it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter", "app.pop_screen", "back")]

    def __init__(self, row: TopRow) -> None:
        super().__init__()
        self._row = row

    def compose(self) -> ComposeResult:
        text = "\n".join(self._row.details(time.time()))
        with VerticalScroll():
            # Names come from the cluster: they are no markup.
            yield Static(text, markup=False, id="decision")
        yield Footer()


class FleetTable(DataTable[Text]):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "select_cursor", "open")]


class TopApp(App[None]):
    """HPAs and VPAs, live."""

    TITLE = "podscale top"
    CSS = "Static { height: auto; } #said { color: $text-warning; } #filter { display: none; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "filter"),
        Binding("s", "sort", "sort by the next column"),
        Binding("r", "reverse", "reverse"),
        Binding("question_mark", "help", "help"),
        Binding("escape", "clear", "all", show=False),
        Binding("q", "quit", "quit"),
    ]

    def __init__(
        self, look: Look, *, by: str = "object", text: str = "", nothing: str = ""
    ) -> None:
        """``nothing`` is said where there are no rows at all."""
        super().__init__()
        self._look, self._by, self._text = look, by, text
        self._is_down = by == "load"
        self._nothing = nothing
        self._rows: Sequence[TopRow] = ()

    def compose(self) -> ComposeResult:
        yield Input(self._text, placeholder="filter", id="filter")
        yield FleetTable(cursor_type="row", zebra_stripes=True)
        yield Static("", markup=False, id="why")
        yield Static("", markup=False, id="said")
        yield Footer()

    async def on_mount(self) -> None:
        self.query_one(DataTable).focus()
        await self.look_again()
        self.set_interval(LOOK_S, self.look_again)

    async def look_again(self) -> None:
        """Read the decisions; what cannot be read leaves those that were."""
        rows, said = await self._look()
        if rows or not said:
            self._rows = rows
        self.query_one("#said", Static).update(said or ("" if rows else self._nothing))
        self._draw()

    def action_filter(self) -> None:
        """Ask for a text."""
        field = self.query_one("#filter", Input)
        field.display = True
        field.focus()

    def action_clear(self) -> None:
        """Show all again."""
        field = self.query_one("#filter", Input)
        field.value = ""
        field.display = False
        self.query_one(DataTable).focus()

    def action_help(self) -> None:
        """Show what the keys and columns are, for a while."""
        self.notify(HELP, timeout=20.0)

    def action_sort(self) -> None:
        """Sort by the next column; the load begins with the highest."""
        self._by = COLUMNS[(COLUMNS.index(self._by) + 1) % len(COLUMNS)]
        self._is_down = self._by == "load"
        self._draw()

    def action_reverse(self) -> None:
        """Turn the order round."""
        self._is_down = not self._is_down
        self._draw()

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw)  # when the size is known

    def on_input_changed(self, changed: Input.Changed) -> None:
        self._text = changed.value
        self._draw()

    def on_input_submitted(self) -> None:
        self.query_one(DataTable).focus()

    def on_data_table_row_selected(self, selected: DataTable.RowSelected) -> None:
        for row in self._rows:
            if row.key == selected.row_key.value:
                self.push_screen(DecisionScreen(row))

    def on_data_table_row_highlighted(self, moved: DataTable.RowHighlighted) -> None:
        whys = (row.why for row in self._rows if row.key == moved.row_key.value)
        for place in self.query("#why").results(Static):  # gone where the app ends
            place.update(printable(next(whys, "")))

    def _draw(self) -> None:
        # The cursor stays on its row, wherever that has gone.
        table = self.query_one(DataTable)
        rows = chosen(self._rows, self._text, self._by, is_down=self._is_down)
        place = table.cursor_row
        keys = [key.value for key in table.rows]
        under = keys[place] if 0 <= place < len(keys) else None
        table.clear(columns=True)
        mark = " ▼" if self._is_down else " ▲"
        heads = {each: each.upper() + (mark if each == self._by else "") for each in COLUMNS}
        cells = [row.cells() for row in rows]
        room = self.size.width - table.styles.scrollbar_size_vertical
        widths = column_widths(heads, cells, room, 2 * table.cell_padding)
        for each, width in widths.items():
            table.add_column(heads[each], key=each, width=width)
        for row, texts in zip(rows, cells, strict=True):
            shown = (text for each, text in zip(COLUMNS, texts, strict=True) if each in widths)
            # A str would be markup.
            table.add_row(*(Text(each, overflow="ellipsis") for each in shown), key=row.key)
        found = [number for number, row in enumerate(rows) if row.key == under]
        table.move_cursor(row=found[0] if found else min(place, max(0, len(rows) - 1)))
