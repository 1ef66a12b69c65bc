"""Every way in which a job can end, in every pool (case U12): one table plays them and writes the page."""
