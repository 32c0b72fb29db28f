"""The files of streamed datasets on one machine, and the process that downloads them. Nothing here imports torch."""
