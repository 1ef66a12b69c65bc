"""The soak: a hundred thousand calls under fire, judged from what the bodies wrote down."""
