// One workload: figures, the timeline with its decisions, a decision in words.

import { ask } from "./api.js";
import { Panel } from "./charts.js";
import { h, mark, say } from "./dom.js";
import { table } from "./table.js";
import { Trail } from "./trail.js";
import { WhatIf } from "./whatif.js";
import { amount, clock, reason } from "./words.js";

const RANGES = [["15 min", 900], ["1 h", 3600], ["6 h", 21600], ["All", 0]];
const LEAST_S = 120;
const OLD_POINTS = 2; // one that is missing may be a sample that is late

export class Detail {
  constructor() {
    this.id = "";
    this.range = 3600;
    this.view = "charts"; // charts, table or whatif
    this.trail = new Trail();
    this.whatIf = new WhatIf();
    this.place = h("p", { class: "crumbs" });
    this.name = h("h1", {});
    this.chip = h("span", { class: "chip" });
    this.tags = h("p", { class: "tags" });
    this.figures = {
      replicas: figure("Replicas"), load: figure("Load"), cpu: figure("CPU a pod"), memory: figure("Memory a pod"),
    };
    this.why = h("p", { class: "why-text" });
    this.change = h("p", { class: "why-change" });
    this.panels = {
      load: new Panel("load", "Load"), replicas: new Panel("replicas", "Replicas"),
      cpu: new Panel("cpu", "CPU a pod"), memory: new Panel("memory", "Memory a pod"),
    };
    this.panels.replicas.stage.before(this.trail.strip);
    this.panels.replicas.placed = () => this.pin(this.panels.replicas);
    this.note = h("p", { class: "empty", hidden: true });
    this.ranges = RANGES.map(([text, seconds]) => h("button", { type: "button", class: "filter", "aria-pressed": String(seconds === this.range),
      onclick: () => this.zoom(seconds) }, text));
    this.tabled = h("button", { type: "button", class: "filter", "aria-pressed": "false", onclick: () => this.turn("table") }, "Table");
    this.asked = h("button", { type: "button", class: "filter", "aria-pressed": "false", onclick: () => this.turn("whatif") }, "What if");
    this.charts = h("div", { class: "charts" }, ...Object.values(this.panels).map((each) => each.element), this.note);
    this.table = h("div", { class: "tabled", hidden: true, tabindex: "0", role: "region", "aria-label": "The timeline as a table" });
    this.element = h("div", { class: "detail" }, this.head(), h("div", { class: "split" },
      h("section", { class: "card timeline", "aria-labelledby": "timeline-title" },
        h("header", { class: "bar" }, h("h2", { id: "timeline-title" }, "Timeline"),
          h("div", { class: "ranges", role: "group", "aria-label": "Span of time" }, ...this.ranges), this.tabled, this.asked),
        this.charts, this.table, this.whatIf.element),
      h("div", { class: "aside" }, this.trail.list, this.trail.told)));
  }

  head() {
    return h("header", { class: "head" },
      h("div", { class: "title" }, h("a", { class: "back", href: "#/", "aria-label": "Back to the overview" }, "←"),
        h("div", {}, this.place, this.name), this.chip, this.tags),
      h("dl", { class: "cells" }, ...Object.values(this.figures).map((each) => each.element)),
      h("div", { class: "why" },
        h("section", {}, h("h2", {}, "Why"), this.why),
        h("section", {}, h("h2", {}, "What would change it"), this.change)));
  }

  choose(id) {
    if (id === this.id) return;
    this.id = id;
    this.last = null;
    this.isFresh = true;
    if (!id) return;
    const [namespace, kind, name] = id.split("/");
    say(this.place, name ? `${namespace} / ${kind}` : "");
    say(this.name, name || id);
    this.clear();
    if (this.view === "whatif") this.turn("whatif");
    this.trail.open(id);
  }

  // Nothing of the workload before may stand under another one's name.
  clear() {
    mark(this.element, "data-lost", null);
    mark(this.chip, "data-state", "idle");
    say(this.chip, "…");
    this.tags.replaceChildren();
    for (const each of Object.values(this.figures)) each.show("–", "");
    say(this.why, "");
    say(this.change, "–");
    for (const each of Object.values(this.panels)) mark(each.element, "hidden", true);
    this.table.replaceChildren();
    mark(this.note, "hidden", true);
  }

  async refresh() {
    const id = this.id;
    let found;
    try {
      found = await ask("workload", { id });
    } catch (error) {
      if (![400, 404].includes(error.status) || id !== this.id) throw error;
      say(this.why, error.status === 404 ? error.message
        : "This address names no workload. An address is #/NAMESPACE/KIND/NAME.");
      mark(this.chip, "data-state", "idle");
      say(this.chip, "not found");
      mark(this.element, "data-lost", true);
      return;
    }
    if (id !== this.id) return;
    this.last = found;
    this.show(found);
  }

  repaint() {
    for (const panel of Object.values(this.panels)) panel.draw();
  }

  zoom(seconds) {
    this.range = seconds;
    RANGES.forEach(([, each], index) => mark(this.ranges[index], "aria-pressed", String(each === seconds)));
    if (this.last) this.show(this.last);
  }

  turn(view) {
    this.view = this.view === view ? "charts" : view;
    mark(this.tabled, "aria-pressed", String(this.view === "table"));
    mark(this.asked, "aria-pressed", String(this.view === "whatif"));
    mark(this.charts, "hidden", this.view === "charts" ? null : true);
    mark(this.table, "hidden", this.view === "table" ? null : true);
    mark(this.whatIf.element, "hidden", this.view === "whatif" ? null : true);
    if (this.view === "whatif") this.whatIf.open(this.id);
    else this.whatIf.close();
    if (this.last) this.show(this.last);
  }

  show(found) {
    const { row } = found;
    mark(this.element, "data-lost", null);
    mark(this.chip, "data-state", row.state);
    say(this.chip, row.state);
    const tags = [row.hpa && `HPA ${row.hpa}`, ...row.others.map((name) => `HPA ${name}`), row.vpa && `VPA ${row.vpa}`, found.updateMode].filter(Boolean);
    if (this.tags.textContent !== tags.join("")) this.tags.replaceChildren(...tags.map((each) => h("span", { class: "tag" }, each)));
    this.showFigures(found);
    say(this.why, found.why || reason(row.reason));
    say(this.change, found.change || "–");
    this.trail.show(found.decisions);
    if (this.view === "table") this.table.replaceChildren(table(found));
    else if (this.view === "charts") this.showPanels(found);
    this.isFresh = false;
  }

  showFigures({ row, cpu, memory }) {
    const { replicas, load, cpu: cores, memory: bytes } = this.figures;
    const bounds = row.least === null ? "" : `between ${row.least} and ${row.most}`;
    mark(replicas.element, "hidden", row.hpa ? null : true);
    mark(load.element, "hidden", row.hpa ? null : true);
    mark(this.asked, "hidden", row.hpa ? null : true);
    replicas.show(row.replicas === null ? "–" : String(row.replicas), row.wants === null ? bounds : `metrics ask for ${row.wants}, ${bounds}`);
    load.show(amount(row.load, row.unit), row.targetLoad === null ? "no HPA" : `target ${amount(row.targetLoad, row.unit)}`);
    cores.show(...sized(cpu, "cores"));
    bytes.show(...sized(memory, "B"));
  }

  showPanels(found) {
    const { row, scaling, cpu, memory } = found;
    const range = this.axis(found);
    const { panels } = this;
    mark(panels.load.element, "hidden", scaling ? null : true);
    mark(panels.replicas.element, "hidden", scaling ? null : true);
    for (const each of ["cpu", "memory"]) mark(panels[each].element, "hidden", found[each] ? null : true);
    if (scaling) {
      panels.load.show([scaling.times, scaling.load, scaling.target], range, { unit: row.unit, title: row.metric || "Load" });
      const times = [...scaling.times, found.now];
      const requests = times.map((at) => (row.vpa && cpu ? cpu.request[cpu.times.findLastIndex((each) => each <= at)] ?? null : null));
      panels.replicas.show([times, [...scaling.replicas, row.replicas], requests], range,
        { bounds: row.least === null ? null : [row.least, row.most] });
    }
    if (cpu) panels.cpu.show([cpu.times, cpu.usage, cpu.request, cpu.limit, cpu.recommended], range, { unit: "cores" });
    if (memory) panels.memory.show([memory.times, memory.usage, memory.request, memory.limit, memory.recommended], range, { unit: "B" });
    const pinned = scaling ? panels.replicas : panels.cpu;
    if (pinned.stage.previousSibling !== this.trail.strip) {
      pinned.stage.before(this.trail.strip);
      pinned.placed = () => this.pin(pinned);
    }
    this.pin(pinned);
    say(this.note, found.sizingNote);
    mark(this.note, "hidden", found.sizingNote ? null : true);
  }

  pin(panel) {
    this.trail.place((at) => panel.place(at));
  }

  axis({ now, scaling, cpu }) {
    const first = Math.min(scaling?.times[0] ?? now, cpu?.times[0] ?? now);
    const from = Math.max(first, this.range ? now - this.range : first);
    return [Math.min(from, now - LEAST_S), now];
  }
}

function figure(title) {
  const value = h("dd", { class: "cell-value" }, "–");
  const about = h("dd", { class: "cell-about" });
  const element = h("div", { class: "cell" }, h("dt", {}, title), value, about);
  const show = (text, note, isOld = false) => {
    say(value, text);
    say(about, note || " ");
    mark(value, "data-old", isOld || null);
  };
  return { element, show };
}

function sized(points, unit) {
  const last = (column) => points?.[column].findLast((each) => each !== null) ?? null;
  if (!points) return ["–", "not sampled yet"];
  const [usage, request, recommended] = [last("usage"), last("request"), last("recommended")];
  const at = points.usage.findLastIndex((each) => each !== null);
  if (at >= 0 && at < points.usage.length - OLD_POINTS) return [amount(usage, unit), `as of ${clock(points.times[at])}, not known since`, true];
  const share = usage !== null && request ? ` · ${Math.round((usage / request) * 100)}% used` : "";
  const asked = request === null ? "nothing requested" : `request ${amount(request, unit)}${share}`;
  return [amount(usage, unit), recommended === null ? asked : `${asked}, recommended ${amount(recommended, unit)}`];
}
