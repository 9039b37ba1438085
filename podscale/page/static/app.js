// Which view is shown, and when it is told anew.

import { ask } from "./api.js";
import { Detail } from "./detail.js";
import { byId, mark, say } from "./dom.js";
import { showFeed } from "./feed.js";
import { List } from "./list.js";
import { Overview } from "./overview.js";

const EVERY_MS = 2000;
const TITLE = "podscale";

const overview = new Overview();
const detail = new Detail();
const list = new List((listing) => overview.show(listing));
let feed = null;

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // "%" that encodes nothing
  }
}

function route() {
  const [, ...parts] = location.hash.split("/").map(decoded);
  const [name] = parts.slice(2);
  const id = parts.slice(0, 3).join("/");
  const view = id ? detail : overview;
  list.select(id);
  detail.choose(id);
  mark(byId("frame"), "data-view", id ? "detail" : "overview");
  if (byId("main").firstElementChild !== view.element) byId("main").replaceChildren(view.element);
  document.title = id ? `${name || id} · ${parts[0]} · ${TITLE}` : TITLE;
  byId("main").scrollTop = 0;
  return look();
}

async function look() {
  try {
    const id = detail.id;
    const [found] = await Promise.all([ask("feed"), list.refresh(), id ? detail.refresh() : overview.refresh()]);
    feed = found;
    showFeed(feed, null);
    mark(document.body, "data-old", Boolean(feed.outage));
    overview.showFeed(feed);
  } catch (error) {
    if (error.name === "AbortError") return;
    showFeed(feed, error);
    mark(document.body, "data-old", true); // what stands there is of before
  }
}

async function follow() {
  // Hidden pages ask nothing: ten forgotten tabs must not cost the cluster anything.
  if (!document.hidden) await look();
  setTimeout(follow, EVERY_MS);
}

addEventListener("hashchange", () => {
  route();
  byId("main").focus({ preventScroll: true });
});
addEventListener("themechange", () => detail.repaint());
document.addEventListener("visibilitychange", () => document.hidden || look());
addEventListener("keydown", (event) => {
  const isTyping = event.target.matches("input, select, textarea");
  if (event.key === "/" && !isTyping) {
    event.preventDefault();
    byId("search").focus();
  } else if (event.key === "Escape" && event.target.id === "search" && event.target.value) {
    event.target.value = "";
    list.find({ q: "" });
  } else if (event.key === "Escape" && detail.id) {
    location.hash = "#/";
  }
});
say(byId("feed-text"), "connecting …");
route();
setTimeout(follow, EVERY_MS);
