"""The turn loop: model calls and tool calls until the agent ends its turn."""
