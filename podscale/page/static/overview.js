// What the whole cluster does: counts, what waits and why, and the feed's health.

import { ask } from "./api.js";
import { h, mark, say } from "./dom.js";
import { stateOf } from "./feed.js";
import { Nodes } from "./nodes.js";
import { isChange, SIGNS } from "./trail.js";
import { age, ago, count, label, short } from "./words.js";

const REASONS = 6;
const RECENT = 7;
const RULES = 8;

export class Overview {
  constructor() {
    this.tiles = {
      all: tile("Workloads", "scaled or sized here"),
      changing: tile("Changing", "size changed in the last pass", "changing"),
      waiting: tile("Waiting", "wants to change but must wait", "waiting"),
      failing: tile("Failing", "no decision possible", "failing"),
    };
    this.held = Array.from({ length: REASONS }, heldRow);
    this.quiet = h("p", { class: "empty" }, "Nothing waits or fails. Every workload has the size that its metrics ask for.");
    this.recent = Array.from({ length: RECENT }, recentRow);
    this.still = h("p", { class: "empty" }, "No size has changed since this page started.");
    this.figures = {
      age: figure("Age of data"), worst: figure("p99 age"), rate: figure("Queries"),
      reused: figure("Served from cache"), failures: figure("Failed queries"),
    };
    this.rules = Array.from({ length: RULES }, ruleRow);
    this.noRules = h("p", { class: "empty" }, "No rules are read in this process.");
    this.nodes = new Nodes();
    this.foot = h("p", { class: "foot" });
    this.element = h(
      "div",
      { class: "overview" },
      h("header", { class: "lead" },
        h("h1", {}, "Every size has a reason"),
        h("p", {}, "Pick a workload to see its load, its size, and each decision in words.")),
      h("section", { class: "tiles", "aria-label": "Workloads by state" },
        ...Object.values(this.tiles).map((each) => each.element)),
      h("div", { class: "pair" },
        h("div", { class: "stack" }, h("section", { class: "card waits", "aria-labelledby": "held-title" },
          h("h2", { id: "held-title" }, "Waiting or failing"),
          h("ul", { class: "held" }, ...this.held.map((each) => each.element)), this.quiet),
        h("section", { class: "card feeding", "aria-labelledby": "feed-title" },
          h("h2", { id: "feed-title" }, "Feed"),
          h("dl", { class: "figures" }, ...Object.values(this.figures).map((each) => each.element)),
          h("h3", {}, "Rules"),
          h("ul", { class: "rules" }, ...this.rules.map((each) => each.element)), this.noRules)),
        h("section", { class: "card lately", "aria-labelledby": "recent-title" },
          h("h2", { id: "recent-title" }, "Changed lately"),
          h("ul", { class: "held" }, ...this.recent.map((each) => each.element)), this.still)),
      this.nodes.element,
      this.foot,
    );
  }

  async refresh() {
    this.nodes.show(await ask("nodes"));
  }

  show(listing) {
    this.tiles.all.show(listing.total);
    for (const state of ["changing", "waiting", "failing"]) this.tiles[state].show(listing.counts[state]);
    this.held.forEach((each, index) => each.show(listing.waiting[index]));
    this.recent.forEach((each, index) => each.show(listing.recent[index], listing.now));
    mark(this.still, "hidden", listing.recent.length ? true : null);
    // One that grows by what its policy allows does not wait, and has not the size it asks for.
    mark(this.quiet, "hidden", listing.waiting.length || listing.counts.changing || !listing.total ? true : null);
    say(this.foot, listing.isLeader ? "" : "Another replica holds the Lease and decides: this one only waits.");
  }

  showFeed(feed) {
    const { age: old, worst, rate, reused, failures } = this.figures;
    old.show(feed.ageS === null ? "–" : age(feed.ageS));
    worst.show(feed.worstAgeS === null ? "–" : age(feed.worstAgeS));
    rate.show(feed.queriesPerS === null ? "–" : `${short(feed.queriesPerS)} /s`);
    reused.show(feed.reused === null ? "–" : `${Math.round(feed.reused * 100)}%`);
    failures.show(feed.failuresPerS === null ? "–" : `${short(feed.failuresPerS)} /s`, stateOf(feed) === "failing" && feed.failuresPerS > 0);
    const rules = [...feed.rules].sort((a, b) => Boolean(b.problem) - Boolean(a.problem));
    this.rules.forEach((each, index) => each.show(rules[index], feed.now));
    say(this.noRules, feed.source === "api"
      ? "Metrics come from the cluster’s metrics APIs; their server knows how old they are."
      : "No rules are read in this process.");
    mark(this.noRules, "hidden", feed.rules.length > 0);
  }
}

function tile(title, about, state) {
  const number = h("p", { class: "tile-number" }, "–");
  const heading = h("h2", {}, state ? h("span", { class: "dot", data: { state } }) : null, title);
  const element = h("article", { class: "tile" }, heading, number, h("p", { class: "tile-about" }, about));
  return { element, show: (value) => say(number, count(value)) };
}

function figure(title) {
  const value = h("dd", {}, "–");
  const element = h("div", {}, h("dt", {}, title), value);
  const show = (text, isBad = false) => {
    say(value, text);
    mark(value, "data-bad", isBad || null);
  };
  return { element, show };
}

function heldRow() {
  const number = h("span", { class: "held-number" });
  const dot = h("span", { class: "dot" });
  const why = h("span", { class: "held-why" });
  const links = Array.from({ length: 3 }, () => h("a", { class: "held-link", href: "#/" }));
  const more = h("span", { class: "held-more" });
  const element = h("li", { class: "held-row" }, dot, why, number,
    h("span", { class: "held-who" }, ...links, more));
  const show = (held) => {
    mark(element, "hidden", held ? null : true);
    if (!held) return;
    mark(dot, "data-state", held.state);
    say(number, count(held.count));
    say(why, `${held.state}: ${label(held.reason, false)}`); // a colour alone says nothing
    links.forEach((link, index) => {
      const id = held.examples[index];
      mark(link, "hidden", id ? null : true);
      if (!id) return;
      const [namespace, , name] = id.split("/");
      mark(link, "href", `#/${id}`);
      say(link, `${namespace}/${name}`);
    });
    const rest = held.count - held.examples.length;
    say(more, rest > 0 ? `and ${count(rest)} more` : "");
  };
  element.hidden = true;
  return { element, show };
}

function recentRow() {
  const sign = h("span", { class: "sign", "aria-hidden": "true" });
  const who = h("a", { class: "held-link", href: "#/" });
  const what = h("span", { class: "held-why" });
  const when = h("span", { class: "held-more" });
  const why = h("span", { class: "held-who" });
  const element = h("li", { class: "held-row", hidden: true }, sign, what, when, h("span", { class: "held-who" }, who, why));
  const show = (recent, now) => {
    mark(element, "hidden", recent ? null : true);
    if (!recent) return;
    const [namespace, , name] = recent.id.split("/");
    mark(element, "data-direction", recent.direction);
    say(sign, SIGNS[recent.direction]);
    mark(who, "href", `#/${recent.id}`);
    say(who, `${namespace}/${name}`);
    say(what, recent.title);
    say(when, ago(now - recent.at));
    say(why, label(recent.reason, isChange(recent)));
  };
  return { element, show };
}

function ruleRow() {
  const dot = h("span", { class: "dot", data: { state: "steady" } });
  const name = h("span", { class: "rule-name" });
  const about = h("span", { class: "rule-about" });
  const element = h("li", { class: "rule", hidden: true }, dot, name, about);
  const show = (rule, now) => {
    mark(element, "hidden", rule ? null : true);
    if (!rule) return;
    mark(dot, "data-state", rule.problem ? "failing" : rule.listedS ? "steady" : "idle");
    say(name, rule.id);
    const listed = rule.listedS ? `listed ${ago(Math.max(now - rule.listedS, 0))}` : "not listed yet";
    say(about, rule.problem || `${count(rule.metrics)} ${rule.metrics === 1 ? "metric" : "metrics"}, ${listed}`);
    mark(about, "title", rule.problem || null);
  };
  return { element, show };
}
