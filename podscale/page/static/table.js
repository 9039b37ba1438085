// The timeline as a table: what the lines show, for whoever reads rather than looks.

import { h } from "./dom.js";
import { amount, clock } from "./words.js";

const MOST = 60;

export function table({ row, scaling, cpu, memory }) {
  const parts = [];
  if (scaling) {
    parts.push(one(`${row.metric || "Load"} and replicas`, scaling.times, [
      ["Load", scaling.load, row.unit], ["Target", scaling.target, row.unit], ["Replicas", scaling.replicas, ""]]));
  }
  for (const [name, found, unit] of [["CPU a pod", cpu, "cores"], ["Memory a pod", memory, "B"]]) {
    if (found) {
      parts.push(one(name, found.times, [["Usage", found.usage, unit], ["Request", found.request, unit],
        ["Limit", found.limit, unit], ["VPA target", found.recommended, unit]]));
    }
  }
  return h("div", {}, ...parts);
}

function one(title, times, columns) {
  const from = Math.max(times.length - MOST, 0);
  const rows = [];
  for (let index = times.length - 1; index >= from; index -= 1) {
    rows.push(h("tr", {}, h("th", { scope: "row" }, clock(times[index])),
      ...columns.map(([, values, unit]) => h("td", {}, values[index] === null ? "not known" : amount(values[index], unit)))));
  }
  return h("table", {}, h("caption", {}, title),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Time"), ...columns.map(([name]) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, ...rows));
}
