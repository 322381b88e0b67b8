// Only what a page without scripts cannot do: live streams, keys, clocks that count on. The log has a script of its own, log.js.
// htmx and its SSE extension swap what changed; idiomorph keeps what did not.
(() => {
  "use strict";
  const $ = (s, r = document) => r.querySelector(s);
  const $$ = (s, r = document) => [...r.querySelectorAll(s)];
  const base = document.body.dataset.base || "";

  // Stream is an EventSource that never gives up: it goes on after the last event that arrived, rests while the page is hidden
  // (browsers allow six connections to a server), and says on the page when it is cut off.
  const streams = new Set();
  let out = false; // the session has ended: nothing here is live any more
  function say() {
    const cut = !out && [...streams].some((s) => s.off);
    document.body.toggleAttribute("data-cut", cut);
    if ($("#cut")) $("#cut").hidden = !cut;
    if ($("#out")) $("#out").hidden = !out;
  }
  async function signedIn() {
    let r;
    try { r = await fetch(base + "/session", { cache: "no-store" }); } catch { return; }
    if (r.status !== 401 || out) return;
    out = true;
    for (const s of [...streams]) s.close();
    const link = $("#out [data-come-back]");
    if (link) link.href = base + "/login?next=" + encodeURIComponent(location.pathname.slice(base.length) + location.search);
    say();
  }
  class Stream {
    constructor(url) { this.url = url; this.last = ""; this.pause = 500; this.handlers = []; streams.add(this); this.open(); }
    get readyState() { return this.source ? this.source.readyState : 0; }
    open() {
      if (out || document.hidden || this.source || !streams.has(this)) return;
      const url = this.last ? this.url + (this.url.includes("?") ? "&" : "?") + "last=" + encodeURIComponent(this.last) : this.url;
      const s = this.source = new EventSource(url);
      s.onopen = (e) => { this.pause = 500; this.cut(false); this.onopen?.(e); };
      s.onerror = () => { this.rest(); this.cut(true); signedIn(); this.timer = setTimeout(() => this.open(), this.pause); this.pause = Math.min(this.pause * 2, 5000); };
      for (const [name, f] of this.handlers) s.addEventListener(name, f);
    }
    rest() { clearTimeout(this.timer); this.source?.close(); this.source = null; }
    close() { this.rest(); this.cut(false); streams.delete(this); }
    cut(off) { this.off = off; say(); }
    addEventListener(name, f) {
      const h = (e) => { if (e.lastEventId) this.last = e.lastEventId; f(e); };
      h.of = f;
      this.handlers.push([name, h]);
      this.source?.addEventListener(name, h);
    }
    removeEventListener(name, f) {
      this.handlers = this.handlers.filter(([n, h]) => { if (n !== name || h.of !== f) return true; this.source?.removeEventListener(n, h); });
    }
  }
  if (window.htmx) htmx.createEventSource = (url) => new Stream(url);
  document.addEventListener("visibilitychange", () => { for (const s of streams) document.hidden ? s.rest() : s.open(); });
  addEventListener("pagehide", () => { for (const s of streams) s.rest(); });
  addEventListener("pageshow", () => { for (const s of streams) s.open(); });

  // What a reader did to the page stays: open details, the chosen row.
  if (window.Idiomorph) {
    Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, el) =>
      !(name === "open" && el.localName === "details" || name === "aria-selected");
  }

  const chosen = $(".fan a.job[aria-current]");
  if (chosen) chosen.parentElement.scrollTop = chosen.offsetTop - chosen.parentElement.offsetTop - 60;

  // Keys: / search, j k move, Enter open, g and a letter go, ? help. None is taken while somebody writes or a dialog is open.
  let g = 0;
  const places = Object.fromEntries($$("[data-key]").map((a) => [a.dataset.key, a.getAttribute("href")]));
  if ($("#keys")) places.n = base + "/start";
  const rowsOf = () => $$("tr[data-href], a.job, a.tl, .job-page #steps a").filter((r) => r.offsetParent);
  function choose(rows, i) {
    const r = rows[Math.max(0, Math.min(rows.length - 1, i))];
    if (!r) return;
    rows.forEach((x) => x.removeAttribute("aria-selected"));
    const link = r.matches("a") ? r : $("a", r); // the focus goes along, so that a screen reader says where one is
    if (!r.matches("a")) r.setAttribute("aria-selected", "true");
    link?.focus({ preventScroll: true });
    r.scrollIntoView({ block: "nearest" });
  }
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.target.matches("input,textarea,select")) {
      if (e.key === "Escape") e.target.blur();
      return;
    }
    if (document.querySelector("dialog[open]")) return;
    if (Date.now() - g < 900) {
      g = 0;
      if (places[e.key]) { location.href = places[e.key]; e.preventDefault(); return; }
    }
    const rows = rowsOf();
    const at = rows.findIndex((r) => r.matches("[aria-selected='true'],:focus"));
    switch (e.key) {
      case "/": {
        const box = $$("input[type=search]").find((i) => i.offsetParent);
        box?.focus(); box?.select(); e.preventDefault(); break;
      }
      case "j": choose(rows, at + 1); break;
      case "k": choose(rows, at < 0 ? 0 : at - 1); break;
      case "Enter": if (at >= 0 && rows[at].dataset.href && e.target === document.body) location.href = rows[at].dataset.href; break;
      case "g": g = Date.now(); break;
      case "?": $("#keys")?.showModal(); break;
    }
  });

  // Clocks: what runs now counts on between two messages, and "ago" ages, by the server's clock.
  const skew = Date.now() - Number(document.body.dataset.now);
  setInterval(() => {
    if (document.hidden) return;
    const now = Date.now() - skew;
    for (const t of $$("[data-since]")) set(t, dur(now - Number(t.dataset.since)));
    for (const t of $$("time[data-ago]")) set(t, ago((now - Number(t.dataset.ago)) / 1000) || t.textContent);
    for (const t of $$("time[data-until]")) set(t, ahead((Number(t.dataset.until) - now) / 1000));
  }, 1000);
  function set(el, text) { if (el.textContent !== text) el.textContent = text; }
  function ago(s) {
    if (s < 60) return Math.max(0, Math.floor(s)) + " s ago";
    if (s < 3600) return Math.floor(s / 60) + " m ago";
    return s < 172800 ? Math.floor(s / 3600) + " h ago" : "";
  }
  function ahead(s) {
    if (s < 1) return "now";
    if (s < 60) return "in " + Math.floor(s) + " s";
    if (s < 3600) return "in " + Math.floor(s / 60) + " m";
    return s < 172800 ? "in " + Math.floor(s / 3600) + " h" : "in " + Math.floor(s / 86400) + " days";
  }
  function dur(ms) {
    const s = Math.max(0, ms) / 1000, m = Math.floor(s / 60), p = (n) => String(n).padStart(2, "0");
    if (s < 9.95) return s.toFixed(1) + " s";
    if (s < 59.5) return s.toFixed(0) + " s";
    if (s < 60) return "1 m 00";
    return s < 3600 ? m + " m " + p(Math.floor(s % 60)) : Math.floor(m / 60) + " h " + p(m % 60);
  }
})();
