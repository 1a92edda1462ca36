// Requests to the API: JSON in and out, the CSRF token along, problems as errors.
import { t } from "./texts.js";

export class Problem extends Error {
  constructor(status, body) {
    super(body?.detail || t("The server cannot be reached."));
    this.status = status;
    this.code = body?.code ?? "offline";
    this.suggestion = body?.suggestion;
    this.campaign = body?.campaign;
    this.now = body?.now;
  }
}

const csrf = () => document.querySelector('meta[name="csrf"]')?.content ?? "";

/** Call a route of the API; returns what it answers, throws a Problem. */
export async function call(method, path, body, { keepalive = false } = {}) {
  const headers = { Accept: "application/json" };
  if (method !== "GET") headers["X-CSRF-Token"] = csrf();
  const form = body instanceof FormData;
  if (body !== undefined && !form) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, { method, headers, body: form || body === undefined ? body : JSON.stringify(body), keepalive, credentials: "same-origin" });
  } catch {
    throw new Problem(0, null);
  }
  const type = response.headers.get("Content-Type") ?? "";
  const content = type.includes("json") && response.status !== 204 ? await response.json() : null;
  if (!response.ok) {
    if (response.status === 401 && !location.pathname.startsWith("/sign-in")) {
      location.assign(`/sign-in?then=${encodeURIComponent(location.pathname + location.search)}`);
    }
    throw new Problem(response.status, content ?? { detail: t("The server answered {status}.", { status: response.status }), code: "http" });
  }
  return content;
}

export const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
export const campaignPath = (campaign, rest = "") => `/api/campaigns/${encodeURIComponent(campaign)}${rest}`;
