"""Speed, compile time and memory, measured side by side with other libraries. See README.md."""
