// The timeline: panels of uPlot with one time axis and one cursor.

import { h, mark, say } from "./dom.js";
import { amount, clock } from "./words.js";

const HEIGHT = { load: 168, replicas: 120, cpu: 132, memory: 132 };
const SYNC = "timeline";
const LEFT = 62; // all panels begin at the same pixel
const MOST_TICKS = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };

const WITH_SECONDS_S = 900; // of an axis so short, two ticks may fall into one minute

// What stands below the ticks of an axis over ``span`` seconds.
export const spoken = (ticks, span) => ticks.map((at) => (span < WITH_SECONDS_S
  ? clock(at) : new Date(at * 1000).toLocaleTimeString("en-GB", MOST_TICKS)));

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// name, colour variable, and how it is drawn; ``own``: the unit of a line with a scale of its own
const KINDS = {
  load: [["Load", "blue", { fill: "blue-soft", width: 2 }], ["Target", "ink-2", { dash: [5, 4] }]],
  replicas: [["Replicas", "violet", { steps: true, fill: "violet-soft", width: 2 }],
    ["CPU request a pod", "amber", { steps: true, width: 1.75, own: "cores" }]],
  cpu: [["Usage", "teal", { fill: "teal-soft", width: 2 }], ["Request", "amber", { steps: true, width: 1.75 }],
    ["Limit", "red", { steps: true, dash: [2, 3] }], ["VPA target", "violet", { steps: true, dash: [5, 4] }]],
};
KINDS.memory = KINDS.cpu;

export class Panel {
  constructor(kind, title) {
    this.kind = kind;
    this.unit = "";
    this.bounds = null;
    this.plot = null;
    this.values = KINDS[kind].map(([name, ink]) => {
      const value = h("b", {}, "–");
      return { value, item: h("span", { class: "key" }, h("i", { data: { ink } }), name, value) };
    });
    this.title = h("h3", {}, title);
    this.note = h("p", { class: "panel-note" });
    this.stage = h("div", { class: "stage", role: "img", data: { kind } });
    this.element = h("section", { class: "panel", hidden: true, data: { kind } },
      h("header", {}, this.title, h("p", { class: "keys" }, ...this.values.map((each) => each.item))),
      this.stage, this.note);
    new ResizeObserver(() => this.fit()).observe(this.stage);
  }

  // ``data``: times, then one array for each line. ``range``: from and to of the axis.
  show(data, range, { unit = "", bounds = null, note = "", title = null } = {}) {
    if (title) say(this.title, title);
    this.unit = unit;
    this.range = range;
    this.bounds = bounds;
    this.data = data;
    say(this.note, note);
    mark(this.note, "hidden", note ? null : true);
    if (!this.plot) this.draw();
    else this.plot.setData(data);
    this.read(null);
    mark(this.stage, "aria-label", this.spoken());
  }

  spoken() {
    const values = this.values.map(({ item }) => item.textContent.replace("–", "not known"));
    return `${this.title.textContent} over time; now ${values.join(", ")}. The table has every value.`;
  }

  draw() {
    if (!this.data || !this.stage.clientWidth) return;
    this.plot?.destroy();
    this.stage.replaceChildren();
    this.plot = new uPlot(this.options(), this.data, this.stage);
  }

  fit() {
    const width = this.stage.clientWidth;
    if (!width) return;
    if (!this.plot) this.draw();
    else if (this.plot.width !== width) this.plot.setSize({ width, height: HEIGHT[this.kind] });
  }

  read(index) {
    this.values.forEach(({ item, value }, line) => {
      const column = this.data?.[line + 1] ?? [];
      const found = index === null ? column.findLast((each) => each !== null) : column[index];
      const unit = KINDS[this.kind][line][2].own ?? this.unit;
      const isCount = this.kind === "replicas" && line === 0 && found != null;
      const text = isCount ? String(Math.round(found)) : amount(found ?? null, unit);
      say(value, text);
      mark(item, "hidden", column.some((each) => each !== null) || line === 0 ? null : true);
    });
  }

  options() {
    const axis = { stroke: colour("ink-3"), grid: { stroke: colour("rule"), width: 1 }, ticks: { show: false },
      font: "11px system-ui, sans-serif" };
    return {
      width: this.stage.clientWidth,
      height: HEIGHT[this.kind],
      legend: { show: false },
      padding: [8, 10, 0, 0],
      cursor: { sync: { key: SYNC, setSeries: false }, y: false, drag: { x: false, y: false },
        points: { size: 7 } },
      scales: { x: { time: true, range: () => this.range }, y: { range: (_, low, high) => this.span(low, high) },
        own: { range: (_, low, high) => [0, high > 0 ? high * 1.12 : 1] } },
      axes: [
        { ...axis, size: 22, gap: 4, space: 84,
          values: (_, ticks) => spoken(ticks, this.range[1] - this.range[0]) },
        { ...axis, size: LEFT, gap: 8, space: 34, incrs: this.kind === "replicas" ? [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000] : undefined,
          splits: this.unit === "B" ? (_, __, low, high) => binary(low, high) : undefined,
          values: (_, ticks) => ticks.map((each) => amount(each, this.unit)) },
      ],
      series: [{}, ...KINDS[this.kind].map(([, ink, how]) => ({
        scale: how.own ? "own" : "y",
        stroke: colour(ink),
        width: how.width ?? 1.5,
        dash: how.dash,
        fill: how.fill ? colour(how.fill) : undefined,
        paths: how.steps ? uPlot.paths.stepped({ align: 1 }) : uPlot.paths.linear(),
        points: { show: false },
      }))],
      hooks: {
        setCursor: [(plot) => this.read(plot.cursor.idx ?? null)],
        drawClear: [(plot) => this.drawBounds(plot)],
        draw: [() => this.placed?.()],
      },
    };
  }

  span(low, high) {
    const top = Math.max(high ?? 0, this.bounds?.[1] ?? 0);
    if (this.kind === "replicas") return [0, Math.max(top * 1.08, 2)];
    return [0, top > 0 ? top * 1.12 : 1];
  }

  drawBounds(plot) {
    if (!this.bounds) return;
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.strokeStyle = colour("ink-3");
    ctx.setLineDash([1, 4 * devicePixelRatio]);
    ctx.lineCap = "round";
    ctx.lineWidth = 1.5 * devicePixelRatio;
    for (const bound of this.bounds) {
      const y = plot.valToPos(bound, "y", true);
      ctx.beginPath();
      ctx.moveTo(bbox.left, y);
      ctx.lineTo(bbox.left + bbox.width, y);
      ctx.stroke();
    }
    ctx.restore();
  }

  // Where a time lies in the stage, in CSS pixels; null outside of what is shown.
  place(at) {
    if (!this.plot || at < this.range[0] || at > this.range[1]) return null;
    return this.plot.valToPos(at, "x") + this.plot.bbox.left / devicePixelRatio;
  }
}

function binary(low, high) {
  let step = 1024;
  while ((high - low) / step > 4) step *= 2;
  const found = [];
  for (let at = 0; at <= high; at += step) found.push(at);
  return found;
}
