"""The one place that sends: waits that end, coming together, the ledger, edges of E, the few collectives."""
