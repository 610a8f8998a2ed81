"""Job `audit`: what was scheduled against the delivery log, the waiting rows and the error queue."""
