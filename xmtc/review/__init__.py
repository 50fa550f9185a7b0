"""Review of predictions by several people: decisions, queues, agreement, concept search and updates from decisions."""
