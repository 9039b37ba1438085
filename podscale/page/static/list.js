// The list: one page of rows in fixed slots, so that nothing moves when it is told anew.

import { ask } from "./api.js";
import { byId, h, mark, say } from "./dom.js";
import { spark } from "./spark.js";
import { amount, count, label } from "./words.js";

export const PAGE = 25;
const STATES = ["", "failing", "changing", "waiting", "steady"];
const NAMES = { "": "All", failing: "Failing", changing: "Changing", waiting: "Waiting", steady: "Steady" };

export class List {
  constructor(told) {
    this.told = told;
    this.query = { q: "", state: "", offset: 0 };
    this.selected = "";
    this.asked = 0;
    this.slots = Array.from({ length: PAGE }, () => slot());
    byId("rows").append(...this.slots.map((each) => each.item));
    this.filters = STATES.map((state) => this.filter(state));
    byId("filters").append(...this.filters.map((each) => each.button));
    byId("search").addEventListener("input", (event) => this.find({ q: event.target.value }));
    byId("before").addEventListener("click", () => this.turn(-PAGE));
    byId("after").addEventListener("click", () => this.turn(PAGE));
    byId("rows").addEventListener("keydown", (event) => this.walk(event));
    byId("search").addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown") this.focus(0, event);
    });
  }

  filter(state) {
    const number = h("span", { class: "number" }, "–");
    const dot = state ? h("span", { class: "dot", data: { state } }) : null;
    const button = h(
      "button",
      { type: "button", class: "filter", "aria-pressed": String(state === ""), data: { state },
        onclick: () => this.find({ state }) },
      dot, h("span", {}, NAMES[state]), number,
    );
    return { state, button, number };
  }

  find(change) {
    this.query = { ...this.query, ...change, offset: 0 };
    for (const { state, button } of this.filters) {
      mark(button, "aria-pressed", String(state === this.query.state));
    }
    this.refresh();
  }

  turn(step) {
    this.query.offset = Math.max(0, this.query.offset + step);
    byId("rows").scrollTop = 0;
    this.refresh();
  }

  async refresh() {
    const number = (this.asked += 1);
    const listing = await ask("workloads", { ...this.query, limit: PAGE });
    if (number !== this.asked) return; // an older answer that came late
    this.query.offset = listing.offset;
    this.show(listing);
    this.told(listing);
  }

  show(listing) {
    const { rows, matched, offset, total } = listing;
    this.slots.forEach((each, index) => each.show(rows[index], this.selected));
    for (const { state, number } of this.filters) {
      say(number, count(state ? listing.counts[state] : total));
    }
    const to = offset + rows.length;
    const range = rows.length ? `${count(offset + 1)}–${count(to)} of ${count(matched)}` : "";
    const nothing = listing.isLeader ? "Nothing is scaled yet" : "Another replica decides";
    say(byId("found"), rows.length ? range : total ? "Nothing matches" : nothing);
    byId("before").disabled = offset === 0;
    byId("after").disabled = to >= matched;
  }

  select(id) {
    this.selected = id;
    for (const each of this.slots) each.select(id);
  }

  walk(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    const at = this.slots.findIndex((each) => each.link === document.activeElement);
    if (at + step < 0) {
      event.preventDefault();
      byId("search").focus();
    } else this.focus(at + step, event);
  }

  focus(index, event) {
    const next = this.slots[index];
    if (!next || next.item.hidden) return;
    event.preventDefault();
    next.link.focus();
  }
}

function slot() {
  const name = h("span", { class: "row-name" });
  const place = h("span", { class: "row-place" });
  const dot = h("span", { class: "dot", data: { state: "steady" } });
  const why = h("span", { class: "row-why" });
  const size = h("span", { class: "row-size" });
  const load = h("span", { class: "row-load" });
  const line = spark();
  const link = h(
    "a",
    { class: "row", href: "#/" },
    h("span", { class: "row-head" }, dot, name, place),
    h("span", { class: "row-foot" }, why),
    line.shape,
    h("span", { class: "row-figures" }, size, load),
  );
  const item = h("li", { class: "slot", "aria-hidden": "true" }, link);
  link.tabIndex = -1;
  let id = "";
  const select = (chosen) => {
    mark(link, "aria-current", id && id === chosen ? "page" : null);
  };
  const show = (row, chosen) => {
    // An empty slot keeps its place: pages of the list are equally high.
    mark(item, "aria-hidden", row ? null : "true");
    mark(link, "tabindex", row ? null : "-1");
    mark(item, "data-empty", row ? null : "true");
    id = row ? row.id : "";
    select(chosen);
    if (!row) return;
    mark(link, "href", `#/${row.id}`);
    const [namespace, kind, called] = row.id.split("/");
    say(name, called);
    say(place, namespace);
    mark(dot, "data-state", row.state);
    const words = label(row.reason, row.state === "changing");
    say(why, words);
    say(size, sizeOf(row));
    say(load, loadOf(row));
    mark(load, "title", row.metric || null);
    mark(link, "aria-label", `${namespace} ${kind} ${called}, ${row.state}: ${words}. ${sizeOf(row)} ${row.hpa ? "replicas" : ""}`);
    line.draw(row.spark);
  };
  return { item, link, show, select };
}

function sizeOf(row) {
  if (row.replicas === null) return row.hpa ? "–" : "sized";
  return row.wants === null ? `×${row.replicas}` : `×${row.replicas} → ${row.wants}`;
}

function loadOf(row) {
  if (!row.hpa) return "VPA";
  if (row.load === null || !row.targetLoad) return row.metric ? "no data" : "";
  if (row.unit === "×") return `${amount(row.load, "×")} target`;
  return `${amount(row.load, row.unit)}/${amount(row.targetLoad, row.unit)}`; // as kubectl get hpa
}
