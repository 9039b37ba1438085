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
    rows.push([clock(times[index]),
      ...columns.map(([, values, unit]) => (values[index] === null ? "not known" : amount(values[index], unit)))]);
  }
  return tabulated(title, ["Time", ...columns.map(([name]) => name)], rows);
}

export function tabulated(title, heads, rows) {
  return h("table", {}, h("caption", {}, title),
    h("thead", {}, h("tr", {}, ...heads.map((head) => h("th", { scope: "col" }, head)))),
    h("tbody", {}, ...rows.map(([head, ...cells]) =>
      h("tr", {}, h("th", { scope: "row" }, head), ...cells.map((cell) => h("td", {}, cell))))));
}
