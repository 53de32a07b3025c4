// SPDX-License-Identifier: Apache-2.0
// What comes by itself: ticks and incidents, and whether they still come.

const STALE_MS = 16_000; // three windows of five seconds, and one more
const AGAIN_MS = [1_000, 2_000, 5_000, 10_000];

export class Live {
  // `heard(kind, data)` gets what comes; `looked(news)` is told each second how it stands.
  constructor(heard, looked) {
    this.heard = heard;
    this.looked = looked;
    this.newestMs = null;
    this.failures = 0;
    this.isOpen = false;
    this.open();
    setInterval(() => this.looked(this.news()), 1_000);
  }

  open() {
    const source = new EventSource("/v1/views/events");
    source.addEventListener("open", () => {
      this.failures = 0;
      this.isOpen = true;
      this.came();
    });
    for (const kind of ["tick", "incident"]) {
      source.addEventListener(kind, (event) => {
        this.came();
        try {
          this.heard(kind, JSON.parse(event.data));
        } catch (error) {
          console.warn("an event that cannot be read", error);
        }
      });
    }
    source.addEventListener("error", () => {
      this.isOpen = false;
      this.looked(this.news());
      // The browser tries again by itself, unless the answer was no stream at all.
      if (source.readyState === EventSource.CLOSED) {
        const wait = AGAIN_MS[Math.min(this.failures, AGAIN_MS.length - 1)];
        this.failures += 1;
        setTimeout(() => this.open(), wait);
        this.heard("closed", null);
      }
    });
  }

  came() {
    this.newestMs = Date.now();
    this.looked(this.news());
  }

  news() {
    const silentMs = this.newestMs === null ? null : Date.now() - this.newestMs;
    const isLost = !this.isOpen || (silentMs !== null && silentMs > STALE_MS);
    return { isLost, newestMs: this.newestMs, silentMs };
  }
}
