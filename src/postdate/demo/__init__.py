"""The main job as a show: several processes, a killed leader, a consumer that checks every arrival."""
