"""How the models that jiyi uses are made: exports that `jiyi models build` runs, and scripts that made what ships."""
