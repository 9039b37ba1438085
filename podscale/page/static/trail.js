// Decisions: as marks on the timeline, as a list, and one of them in words.

import { ask } from "./api.js";
import { h, mark, say } from "./dom.js";
import { clock, label, reason, stamp } from "./words.js";

export const SIGNS = { up: "▲", down: "▼", held: "•", failed: "!" };
const SPOKEN = { up: "up", down: "down", held: "held", failed: "failed" };
const MOST = 60;

export const isChange = ({ direction }) => direction === "up" || direction === "down";

export class Trail {
  constructor() {
    this.id = "";
    this.chosen = "";
    this.decisions = [];
    this.shown = "";
    this.items = h("ol", { class: "decisions", "aria-label": "Decisions, newest first",
      onkeydown: (event) => this.walk(event) });
    this.none = h("p", { class: "empty" }, "No decision yet. The first one comes within a sync period.");
    this.strip = h("div", { class: "strip", role: "group", "aria-label": "Decisions on the timeline" });
    this.words = h("article", { class: "words", "aria-live": "polite", tabindex: "-1" });
    this.list = h("section", { class: "card trail", "aria-labelledby": "trail-title" },
      h("h2", { id: "trail-title" }, "Decisions"), this.items, this.none);
    this.told = h("section", { class: "card told", "aria-label": "The decision in words" }, this.words);
  }

  open(id) {
    this.id = id;
    this.chosen = this.shown = "";
    this.decisions = [];
    this.items.replaceChildren();
    this.strip.replaceChildren();
    this.words.replaceChildren(h("p", { class: "empty" }, "Pick a decision to read how it came about."));
  }

  show(decisions) {
    const kept = decisions.slice(0, MOST);
    mark(this.none, "hidden", kept.length ? true : null);
    const now = kept.map((each) => each.key).join();
    if (now === this.decisions.map((each) => each.key).join()) return;
    const focused = document.activeElement?.dataset?.key;
    this.decisions = kept;
    this.items.replaceChildren(...kept.map((each) => this.item(each)));
    this.strip.replaceChildren(...kept.filter((each) => each.direction !== "held").map((each) => this.pin(each)));
    if (focused) this.items.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
    if (!this.chosen && kept.length) {
      // The newest that did something says more than the newest that held.
      const first = kept.find((each) => each.direction !== "held") ?? kept[0];
      this.choose(first.key);
    } else this.paint();
  }

  item(decision) {
    return h("li", {},
      h("button", { type: "button", class: "decision", data: { key: decision.key, direction: decision.direction },
        onclick: () => this.choose(decision.key, true) },
      h("span", { class: "sign", "aria-hidden": "true" }, SIGNS[decision.direction]),
      h("span", { class: "decision-title" }, decision.title),
      h("time", { datetime: stamp(decision.at), title: stamp(decision.at) }, clock(decision.at)),
      h("span", { class: "decision-why" }, label(decision.reason, isChange(decision)))));
  }

  pin(decision) {
    // The list holds the same for the keyboard; two tab stops a decision would be one too many.
    return h("button", { type: "button", class: "pin", tabindex: "-1", title: `${clock(decision.at)}  ${decision.title}`,
      "aria-label": `${clock(decision.at)} ${SPOKEN[decision.direction]}: ${decision.title}`,
      data: { key: decision.key, direction: decision.direction }, onclick: () => this.choose(decision.key, true) },
    SIGNS[decision.direction]);
  }

  place(where) {
    for (const pin of this.strip.children) {
      const decision = this.decisions.find((each) => each.key === pin.dataset.key);
      const left = decision ? where(decision.at) : null;
      pin.hidden = left === null;
      if (left !== null) pin.style.transform = `translateX(${(left - 9).toFixed(1)}px)`;
    }
  }

  paint() {
    for (const each of [...this.items.querySelectorAll("button"), ...this.strip.children]) {
      mark(each, "aria-pressed", String(each.dataset.key === this.chosen));
    }
  }

  async choose(key, isByHand = false) {
    this.chosen = key;
    this.paint();
    const id = this.id;
    let told;
    try {
      told = await ask("decision", { id, key });
    } catch (error) {
      told = { key, title: "Not known any more", reason: "", also: [], sentences: [error.message], change: "", facts: {}, at: null };
    }
    if (id !== this.id || key !== this.chosen || this.shown === key) return;
    this.shown = key;
    this.words.replaceChildren(...inWords(told));
    if (isByHand && matchMedia("(max-width: 1180px)").matches) this.words.scrollIntoView({ block: "nearest" });
  }

  walk(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    const buttons = [...this.items.querySelectorAll("button")];
    const next = buttons[buttons.indexOf(document.activeElement) + step];
    if (!next) return;
    event.preventDefault();
    next.focus();
    this.choose(next.dataset.key);
  }
}

function inWords(told) {
  const facts = Object.entries(told.facts).filter(([, value]) => value !== null && value !== "");
  const also = told.also.length
    ? h("p", { class: "also" }, ...told.also.map((each) => h("span", { class: "tag" }, reason(each)))) : null;
  return [
    h("header", {}, h("p", { class: "words-at" }, told.at ? `${clock(told.at)} · ${stamp(told.at)}` : ""), h("h2", {}, told.title),
      told.reason ? h("p", { class: "words-why", title: told.reason }, label(told.reason, told.title.includes("→"))) : null),
    h("ol", { class: "steps" }, ...told.sentences.map((each) => h("li", {}, each))),
    told.change ? h("p", { class: "change" }, h("b", {}, "What would change it"), h("span", {}, told.change)) : null,
    also,
    facts.length ? h("details", {}, h("summary", {}, "Facts"),
      h("dl", { class: "facts" }, ...facts.flatMap(([name, value]) =>
        [h("dt", {}, name.replaceAll("_", " ")), h("dd", {}, String(value))]))) : null,
  ].filter(Boolean);
}
