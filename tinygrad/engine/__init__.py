"""Running schedules: compile what is missing, launch in order, capture and replay."""
