"""Running schedules: compile what is missing, launch in order, capture and replay.

In:   the LINEAR of a schedule.
Out:  memory that holds the results.
Why:  what a program computes was decided before; here it is only about doing it with as little Python as possible.
"""
