// Runs before the first paint, so that a dark room is not lit up. The choice is "light", "dark" or absent (as the system).
const scheme = matchMedia("(prefers-color-scheme: dark)");
function applyTheme() {
  const chosen = localStorage.getItem("theme");
  document.documentElement.dataset.theme = chosen || (scheme.matches ? "dark" : "light");
}
applyTheme();
scheme.addEventListener("change", applyTheme);
addEventListener("storage", (event) => event.key === "theme" && applyTheme());
