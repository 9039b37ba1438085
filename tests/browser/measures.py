"""What is measured inside the page: contrast, names, pixels."""

# Every text that is shown, against what lies behind it: WCAG's 4.5 (3 for large text).
CONTRAST = """() => {
  const parse = (text) => {  // rgb(…), rgba(…), or color(srgb …) as color-mix computes
    const [r = 0, g = 0, b = 0, alpha = 1] = (text.match(/[\\d.]+(e-\\d+)?/g) || []).map(Number);
    return text.startsWith("color(") ? [r * 255, g * 255, b * 255, alpha] : [r, g, b, alpha];
  };
  const over = (top, below) =>
    below.map((each, index) => top[index] * top[3] + each * (1 - top[3]));
  const light = ([r, g, b]) => [r, g, b].map((each) => each / 255)
    .map((each) => (each <= 0.03928 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4))
    .reduce((sum, each, index) => sum + each * [0.2126, 0.7152, 0.0722][index], 0);
  const behind = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      layers.push(colour);
      if (colour[3] === 1) break;
    }
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  const isText = (each) => each.nodeType === 3 && each.textContent.trim();
  const poor = [];
  for (const element of document.querySelectorAll("body *")) {
    if (![...element.childNodes].some(isText)) continue;
    if (!element.checkVisibility({ visibilityProperty: true })) continue;
    if (element.closest("button:disabled, .hidden, noscript")) continue;
    const style = getComputedStyle(element);
    const back = behind(element);
    const words = over(parse(style.color), back);
    const [a, b] = [light(words), light(back)].sort((x, y) => y - x);
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
