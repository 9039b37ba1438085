// The pill in the corner: is what we show current?

import { byId, mark, say } from "./dom.js";
import { age, count, short } from "./words.js";

export function showFeed(feed, error) {
  const dot = byId("feed").firstElementChild;
  if (error) {
    mark(dot, "data-state", "failing");
    say(byId("feed-text"), error.status ? error.message : "connection lost, showing what was known");
    return;
  }
  mark(dot, "data-state", stateOf(feed));
  say(byId("feed-text"), summary(feed));
}

export function stateOf(feed) {
  return feed.outage || feed.failingRules || feed.failuresPerS > 0 ? "failing" : "steady";
}

export function summary(feed) {
  if (feed.source === "api") return "metrics from the cluster’s APIs";
  if (feed.outage) return feed.outage;
  const parts = [];
  if (feed.ageS !== null) parts.push(`data ${age(feed.ageS)} old`);
  if (feed.queriesPerS !== null) parts.push(`${short(feed.queriesPerS)} queries/s`);
  if (feed.failingRules) parts.push(`${count(feed.failingRules)} failing ${feed.failingRules === 1 ? "rule" : "rules"}`);
  else if (feed.rules.length) parts.push("rules ok");
  return parts.join(" · ") || "no data yet";
}
