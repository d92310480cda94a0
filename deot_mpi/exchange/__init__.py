"""The one place that sends: waits that end, the ledger, edges of E, and the few collectives."""
