/** Requests to LLM providers by Isochrone's route tables; see docs/clients.md. */

export { TableError, type Hedge, type RouteEntry, type RouteTable } from "./documents.js";
export { routedFetch } from "./fetch.js";
export { Routes, type Member, type RoutesOptions } from "./routes.js";
