"""What is measured inside the page: contrast, names, pixels."""

# Every text that is shown, against what lies behind it: WCAG's 4.5 (3 for large text).
CONTRAST = """() => {
  const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((each) => each / 255)
    .map((each) => (each <= 0.03928 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4))
    .reduce((sum, each, index) => sum + each * [0.2126, 0.7152, 0.0722][index], 0);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const found = getComputedStyle(at).backgroundColor;
      const colour = parse(found);
      if (found.startsWith("rgb(") || colour[3] === 1) return colour;
      if (!found.startsWith("rgb")) return null;
    }
    return [255, 255, 255];
  };
  const isText = (each) => each.nodeType === 3 && each.textContent.trim();
  const poor = [];
  for (const element of document.querySelectorAll("body *")) {
    if (![...element.childNodes].some(isText)) continue;
    if (!element.checkVisibility({ visibilityProperty: true })) continue;
    if (element.closest("button:disabled, .hidden, noscript")) continue;
    const style = getComputedStyle(element);
    const back = behind(element);
    if (!back) continue;
    const [a, b] = [light(parse(style.color)), light(back)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    // Signs that repeat what is written beside them are graphics: 3.
    const isSign = element.getAttribute("aria-hidden") === "true";
    if (ratio >= (isLarge || isSign ? 3 : 4.5)) continue;
    poor.push(`${element.className || element.nodeName} ${ratio.toFixed(2)}`);
  }
  return poor;
}"""

# What can be reached and says nothing to a screen reader.
NAMELESS = """() => [...document.querySelectorAll("button, a, input, select")]
  .filter((each) => each.checkVisibility({ visibilityProperty: true }))
  .filter((each) => !each.getAttribute("aria-label"))
  .filter((each) => !each.textContent.trim() && !each.labels?.length)
  .map((each) => each.outerHTML.slice(0, 80))"""

# How many pixels of a panel's canvas are not empty.
PAINTED = """(kind) => {
  const canvas = document.querySelector(`.panel[data-kind="${kind}"] canvas`);
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  let count = 0;
  for (let at = 3; at < pixels.length; at += 4) if (pixels[at]) count += 1;
  return count;
}"""
