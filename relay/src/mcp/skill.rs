//! The skill that teaches an agent to work in a live Emacs: as a resource, and through the Skills
//! extension. It is part of the program, so it always fits the version.

use std::sync::LazyLock;

use rmcp::model::{
    Resource, ResourceContents, Skill, SkillFrontmatter, SkillResource, SkillResources,
};

const TEXT: &str = include_str!("../../../skills/emacs-live/SKILL.md");

/// Where the skill's one file is.
const URI: &str = "skill://emacs-live/SKILL.md";

/// The folder of that file.
const DIRECTORY: &str = "skill://emacs-live";

const MIME_TYPE: &str = "text/markdown";

static FRONTMATTER: LazyLock<SkillFrontmatter> = LazyLock::new(|| {
    let field = |key: &str| {
        let lines = TEXT.lines().skip(1).take_while(|line| *line != "---");
        lines
            .filter_map(|line| line.split_once(": "))
            .find_map(|(name, value)| (name == key).then(|| value.trim().to_owned()))
            .unwrap_or_default()
    };
    SkillFrontmatter::new(field("name"), field("description"))
});

/// The skill as the extension lists it.
pub(super) fn skill() -> Skill {
    let file = SkillResource::from_bytes(URI, TEXT.as_bytes());
    Skill::new(URI, FRONTMATTER.clone(), SkillResources::Files(vec![file]))
}

/// The skill if it is the one at `uri`.
pub(super) fn skill_at(uri: &str) -> Option<Skill> {
    (uri == URI).then(skill)
}

/// Its file as `resources/list` shows it.
pub(super) fn resource() -> Resource {
    let frontmatter = &*FRONTMATTER;
    let mut resource = Resource::new(URI, frontmatter.name.clone());
    resource.title = Some("Working in a live Emacs".to_owned());
    resource.description = Some(frontmatter.description.clone());
    resource.mime_type = Some(MIME_TYPE.to_owned());
    resource.size = Some(TEXT.len() as u64);
    resource
}

/// What is in the file at `uri`.
pub(super) fn read(uri: &str) -> Option<ResourceContents> {
    (uri == URI).then(|| ResourceContents::text(TEXT, URI).with_mime_type(MIME_TYPE))
}

/// What is in the folder at `uri`.
pub(super) fn directory(uri: &str) -> Option<Vec<Resource>> {
    (uri.trim_end_matches('/') == DIRECTORY).then(|| vec![resource()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_says_what_the_file_says() {
        let skill = skill();
        skill.validate().unwrap();
        assert_eq!(skill.frontmatter.name, "emacs-live");
        assert!(TEXT.contains(&format!(
            "\ndescription: {}\n",
            skill.frontmatter.description
        )));
        // All there is in the frontmatter.
        assert_eq!(TEXT.lines().position(|line| line == "---"), Some(0));
        assert_eq!(TEXT.lines().skip(1).position(|line| line == "---"), Some(2));
    }
}
