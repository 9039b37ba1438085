// The small line beside a name: load against its target, or usage against its request.

import { svg } from "./dom.js";

const WIDTH = 84;
const HEIGHT = 40;

export function spark() {
  const area = svg("path", { class: "spark-area" });
  const line = svg("path", { class: "spark-line" });
  const aim = svg("line", { class: "spark-aim", x1: 0, x2: WIDTH });
  const steps = svg("path", { class: "spark-steps" });
  const shape = svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "spark", "aria-hidden": "true" },
    area, aim, steps, line,
  );
  return { shape, draw: (points) => draw(points, { area, line, aim, steps }) };
}

function draw(points, { area, line, aim, steps }) {
  const shares = points.load.length ? points.load : points.usage;
  const times = points.times;
  const known = shares.filter((share) => share !== null);
  const top = Math.max(1.25, ...known);
  const from = times[0];
  const span = Math.max(times[times.length - 1] - from, 1);
  const x = (at) => ((at - from) / span) * WIDTH;
  const y = (share) => HEIGHT - 2 - (share / top) * (HEIGHT - 4);
  let path = "";
  let under = "";
  let open = null;
  shares.forEach((share, index) => {
    if (share === null) {
      if (open !== null) under += `L${open},${HEIGHT}Z`;
      open = null;
      return;
    }
    const at = x(times[index]).toFixed(1);
    path += `${open === null ? "M" : "L"}${at},${y(share).toFixed(1)}`;
    under += `${open === null ? `M${at},${HEIGHT}L` : "L"}${at},${y(share).toFixed(1)}`;
    open = at;
  });
  if (open !== null) under += `L${open},${HEIGHT}Z`;
  const size = Math.max(1, ...points.replicas.map((each) => each ?? 0));
  let stairs = "";
  points.replicas.forEach((replicas, index) => {
    if (replicas === null) return;
    const level = (HEIGHT - 2 - (replicas / size) * (HEIGHT - 4)).toFixed(1);
    stairs += stairs ? `H${x(times[index]).toFixed(1)}V${level}` : `M${x(times[index]).toFixed(1)},${level}`;
  });
  line.setAttribute("d", path);
  area.setAttribute("d", under);
  steps.setAttribute("d", stairs);
  aim.setAttribute("y1", y(1));
  aim.setAttribute("y2", y(1));
  aim.setAttribute("visibility", known.length ? "visible" : "hidden");
}
