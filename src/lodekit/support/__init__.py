"""General helpers without knowledge of models: arguments, files, HTML, labels, progress, text, threads and units."""
