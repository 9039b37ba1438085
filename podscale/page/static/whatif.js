// What other targets would have done with the load that is drawn: replayed by a child of the server.

import { ask } from "./api.js";
import { h } from "./dom.js";
import { tabulated } from "./table.js";

const AGAIN_MS = 1000;
const COLUMNS = [
  ["podHours", "Pod-hours", (value) => (value < 1 ? value.toPrecision(2) : value.toFixed(1))],
  ["unserved", "Unserved", (value) => `${(value * 100).toFixed(2)}%`],
  ["overTarget", "Over target", (value) => `${Math.round(value / 60)} min`],
  ["rescalesADay", "Rescales a day", (value) => value.toFixed(0)],
  ["largest", "Largest", String],
];

export class WhatIf {
  constructor() {
    this.id = "";
    this.element = h("div", { class: "tabled whatif", hidden: true, tabindex: "0", role: "region", "aria-label": "What if", "aria-live": "polite" });
  }

  close() {
    this.id = "";
    clearTimeout(this.timer);
  }

  async open(id) {
    if (this.id !== id) {
      this.id = id;
      this.element.replaceChildren(h("p", { class: "empty" }, "Replaying …"));
    }
    let found;
    try {
      found = await ask("whatif", { id });
    } catch (error) {
      found = { state: "failed", message: error.message };
    }
    if (id !== this.id) return;
    if (found.state === "running") {
      this.timer = setTimeout(() => this.open(id), AGAIN_MS);
      return;
    }
    this.element.replaceChildren(found.state === "done" ? report(found.report) : h("p", { class: "empty" }, found.message));
  }
}

function report({ specs, assumptions }) {
  const rows = specs.map((spec) => [called(spec.spec), ...COLUMNS.map(([key, , words]) => words(spec[key]))]);
  return h("div", {},
    tabulated("The load of this timeline, with other targets", ["Target", ...COLUMNS.map(([, title]) => title)], rows),
    h("p", { class: "empty" }, "Load is counted in pods at today's target. ", assumptions.join("; "), "."));
}

// Today's target is 1, and comes from a file of the server's.
function called(spec) {
  const swept = /^target=([0-9]+)(m?)$/.exec(spec);
  if (swept) return `today's × ${Number(swept[1]) / (swept[2] ? 1000 : 1)}`;
  return spec === "oracle" ? "oracle" : "today's";
}
