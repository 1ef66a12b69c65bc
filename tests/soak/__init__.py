"""The soak: very many calls under fire, judged from what the bodies wrote down."""
