
const read = (id) => document.getElementById(id).textContent;
const packed = new Blob([Uint8Array.from(atob(read("tables")), (byte) => byte.charCodeAt(0))]);
const library = await new Response(packed.stream().pipeThrough(new DecompressionStream("gzip"))).text();
const source = URL.createObjectURL(new Blob([library], { type: "text/javascript" }));
const { default: DataTable } = await import(source);
URL.revokeObjectURL(source);
const escaped = DataTable.util.escapeHtml;
const text = (cell) => (Array.isArray(cell) ? cell[0] : cell);
const reads = /^[-+]?[\d,.]+(e[-+]?\d+)?(%| \[.*\])?$/;
function value(cell) {
  if (Array.isArray(cell) && cell[1] !== null) return cell[1];
  const told = text(cell);
  return told === "-" ? null : reads.test(told) ? parseFloat(told.replaceAll(",", "")) : told;
}
const last = (way) => (a, b) => (a === b ? 0 : a === null ? 1 : b === null ? -1 : way * (a < b ? -1 : 1));
DataTable.type("cell", { order: { asc: last(1), desc: last(-1) } });

// Also what is filtered is HTML: the library reads texts with "&" as such.
function show(cell, kind) {
  if (kind === "sort") return value(cell);
  const told = escaped(text(cell)), colour = kind === "display" && Array.isArray(cell) && cell[2];
  return colour ? `<span class="${colour}">${told}</span>` : told;
}

const FEW = 2; // columns beside the first that a narrow screen has at least, and scrolls
const data = JSON.parse(read("data"));
document.querySelectorAll("table.rows").forEach((place, number) => {
  const { columns, rows } = data[number];
  const long = rows.length > 50, choice = document.createElement("details");
  choice.className = "columns";
  const table = new DataTable(place, {
    data: rows, deferRender: true, autoWidth: false, order: [], paging: long, pageLength: 50, info: rows.length > 1,
    columns: columns.map((column, i) => ({
      data: i, render: show, type: "cell", visible: column.priority < 9, className: column.left ? "dt-left" : "dt-right" })),
    layout: { topStart: rows.length > 1 ? "search" : null, topEnd: () => choice,
      bottomStart: rows.length > 1 ? "info" : null, bottomEnd: long ? "paging" : null },
    language: { search: "Filter", lengthMenu: "_MENU_ rows", info: "_TOTAL_ rows", infoFiltered: "of _MAX_",
      infoEmpty: "no row", zeroRecords: "No row has that." },
  });
  const box = place.parentElement;
  Object.assign(box, { tabIndex: 0, role: "region", ariaLabel: `Rows of table ${number + 1}` });
  box.addEventListener("keydown", (event) => { // the library hears Enter alone
    if (event.key !== " " || !event.target.matches(".dt-column-order")) return;
    event.preventDefault();
    event.target.click();
  });
  const order = columns.map((column, i) => i).slice(1).sort((a, b) => columns[b].priority - columns[a].priority || b - a);
  for (const i of order.filter((one) => columns[one].priority < 9).slice(0, -FEW)) {
    if (box.scrollWidth <= box.clientWidth || columns[i].priority < 0) break;
    table.column(i).visible(false, false);
  }
  choice.append(Object.assign(document.createElement("summary"), { textContent: "Columns" }));
  columns.forEach((_, i) => {
    const label = document.createElement("label"), tick = document.createElement("input");
    Object.assign(tick, { type: "checkbox", checked: table.column(i).visible() });
    tick.addEventListener("change", () => table.column(i).visible(tick.checked));
    label.append(tick, ` ${table.column(i).title()}`);
    choice.append(label);
  });
  addEventListener("beforeprint", () => table.page.len(-1).draw());
  addEventListener("afterprint", () => table.page.len(50).draw());
});
document.body.dataset.ready = "";
performance.mark("ready");

document.querySelectorAll("figure").forEach((figure) => {
  const picture = figure.querySelector("svg"), tip = figure.querySelector(".tip");
  const marks = [...figure.querySelectorAll(".mark")];
  let now = -1;
  const at = (mark) => {
    const box = mark.getBoundingClientRect();
    return [box.left + box.width / 2, box.top + box.height / 2];
  };
  const tell = (index) => {
    marks[now]?.classList.remove("now");
    if (index !== now) tip.textContent = marks[index]?.dataset.tip ?? "";
    now = index;
    if (now < 0) return;
    marks[now].classList.add("now");
    const [x, y] = at(marks[now]), frame = figure.getBoundingClientRect();
    tip.style.left = `${Math.max(0, Math.min(x - frame.left + 12, frame.width - tip.offsetWidth))}px`;
    tip.style.top = `${y - frame.top + 12}px`;
  };
  const near = (event) => {
    const far = (mark) => Math.hypot(...at(mark).map((c, i) => c - [event.clientX, event.clientY][i]));
    const best = marks.reduce((found, mark, i) => (far(mark) < found[0] ? [far(mark), i] : found), [28, -1]);
    tell(best[1]);
  };
  picture.addEventListener("pointermove", near);
  picture.addEventListener("pointerdown", near);
  picture.addEventListener("pointerleave", () => tell(-1));
  picture.addEventListener("blur", () => tell(-1));
  picture.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") tell(-1);
    if (!step || !marks.length) return;
    event.preventDefault();
    tell((now + step + marks.length) % marks.length);
  });
});

document.querySelectorAll(".copy").forEach((button) => button.addEventListener("click", async () => {
  const command = button.previousElementSibling;
  try {
    await navigator.clipboard.writeText(command.textContent);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(command);
    button.textContent = "Selected: copy it";
  }
}));
