"""Every form of a canvas, with equal members, under each of the three modes."""
