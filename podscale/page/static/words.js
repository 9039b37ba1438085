// Numbers, times and tokens as people read them.

const TWO = ["", "Ki", "Mi", "Gi", "Ti"];

export function amount(value, unit) {
  if (value === null || value === undefined) return "–";
  if (unit === "%") return `${short(value)}%`;
  if (unit === "×") return `${short(value)}×`;
  if (unit === "B") {
    let size = value;
    let power = 0;
    while (Math.abs(size) >= 1024 && power < TWO.length - 1) {
      size /= 1024;
      power += 1;
    }
    return `${short(size)} ${TWO[power]}B`;
  }
  if (unit === "cores") {
    return value < 1 ? value === 0 ? "0" : `${Math.round(value * 1000)}m` : `${short(value)} ${value === 1 ? "core" : "cores"}`;
  }
  return short(value);
}

export function short(value) {
  const size = Math.abs(value);
  if (size >= 1e9) return `${trim(value / 1e9)} G`;
  if (size >= 1e6) return `${trim(value / 1e6)} M`;
  if (size >= 1e4) return `${trim(value / 1e3)} k`;
  return trim(value);
}

function trim(value) {
  const size = Math.abs(value);
  return String(Number(value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2)));
}

export const count = (number) => number.toLocaleString("en-US");

// "ScaleUpRateLimited" is a token for machines and kubectl; people get its words.
export function reason(token) {
  if (!token) return "no decision yet";
  if (token === "QuickOom") return "OOM-killed right after start";
  const words = token
    .replace(/([a-z])([A-Z])/g, "$1 $2")
    .replace(/([A-Z]+)([A-Z][a-z])/g, "$1 $2")
    .split(" ")
    .map((word) => (/^[A-Z]{2,}$/.test(word) ? word : word.toLowerCase()));
  const text = words.join(" ");
  return text[0].toUpperCase() + text.slice(1);
}

const BY = {
  ScaleDownStabilized: "scale-down window", ScaleUpStabilized: "scale-up window",
  ScaleDownRateLimited: "scale-down policy", ScaleUpRateLimited: "scale-up policy",
  LegacyScaleUpLimit: "limit of one pass", MaxReplicasReached: "maxReplicas", MinReplicasReached: "minReplicas",
};

// What holds a size where it is only limits a change.
export const label = (token, isChange) => (BY[token] ? `${isChange ? "Limited" : "Held"} by ${BY[token]}` : reason(token));

const CLOCK = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };

export const clock = (at) => new Date(at * 1000).toLocaleTimeString("en-GB", CLOCK);

// The day, and the zone that explain, events and logs tell times in.
export const stamp = (at) => new Date(Math.floor(at) * 1000).toISOString().replace(".000Z", "Z");

export function age(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1) return "under 1 s";
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return `${Math.round(seconds / 3600)} h`;
}

export const ago = (seconds) => (seconds < 1.5 ? "now" : `${age(seconds)} ago`);
