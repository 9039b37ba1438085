// Before anything is painted, so that a chosen theme never flashes as the other one.
(() => {
  const ORDER = ["auto", "light", "dark"];
  const read = () => {
    try {
      return localStorage.getItem("podscale-theme") || "auto";
    } catch {
      return "auto";
    }
  };
  const apply = (theme) => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  };
  apply(read());
  addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const name = (theme) => theme[0].toUpperCase() + theme.slice(1);
    const label = () => {
      button.textContent = name(read());
      button.setAttribute("aria-label", `Colour theme: ${read()}`);
    };
    button.addEventListener("click", () => {
      const next = ORDER[(ORDER.indexOf(read()) + 1) % ORDER.length];
      try {
        localStorage.setItem("podscale-theme", next);
      } catch {
        // Private windows may refuse; the theme then holds until the next load.
      }
      apply(next);
      label();
      dispatchEvent(new Event("themechange"));
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
      dispatchEvent(new Event("themechange")),
    );
    label();
  });
})();
