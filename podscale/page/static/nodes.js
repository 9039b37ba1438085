// The fullest nodes: what is used, what is requested, and what ballast adds to it.

import { h, mark, say } from "./dom.js";
import { tabulated } from "./table.js";
import { amount, clock, count, reason } from "./words.js";

const HEADS = ["Node", "State", "Largest pod that fits", ...["CPU", "Memory"].flatMap((name) =>
  [`${name} used`, "free by measured load", "requested", "ballast", "allocatable"])];

export class Nodes {
  constructor() {
    this.title = h("h2", { id: "nodes-title" });
    this.table = h("div", { class: "tabled", tabindex: "0", role: "region", "aria-labelledby": "nodes-title" });
    this.element = h("section", { class: "card nodes", hidden: true }, this.title, this.table);
  }

  show({ rows, total }) {
    mark(this.element, "hidden", total ? null : true);
    say(this.title, rows.length < total ? `The fullest ${rows.length} of ${count(total)} nodes` : "Nodes");
    this.table.replaceChildren(tabulated("Usage, requests and ballast", HEADS, rows.map((row) =>
      [row.name, state(row), largest(row), ...amounts(row.cpu, "cores"), ...amounts(row.memory, "B")])));
  }
}

const state = (row) => reason(row.reason)
  + (row.reason === "StaleUsage" && row.measured !== null ? `, last measured at ${clock(row.measured)}` : "");

// What requests and ballast leave, which is what the scheduler looks at.
const largest = ({ cpu, memory }) => [[cpu, "cores"], [memory, "B"]].map(([of, unit]) =>
  amount(of.allocatable === null ? null : Math.max(of.allocatable - of.requested - of.ballast, 0), unit)).join(", ");

const amounts = (of, unit) =>
  [of.usage, of.room, of.requested, of.ballast, of.allocatable].map((value) => amount(value, unit));
